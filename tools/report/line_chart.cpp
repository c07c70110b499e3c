#include "tools/report/line_chart.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "tools/report/axis.h"
#include "tools/report/html.h"
#include "tools/report/series.h"

namespace tandem::report {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kSize = 1000.0;       ///< of the SVG's own coordinates, both ways
constexpr std::size_t kPlaces = 1200;  ///< of a drawn line
constexpr std::size_t kSamples = 400;  ///< of a line that can be read from the keyboard
constexpr std::size_t kTableRows = 12;
constexpr double kLabelGap = 100.0 * 16.0 / 220.0;  ///< a label's height, in percent of the plot's

/// Seconds in the unit that a run of this length is told in.
struct TimeUnit {
  const char* name;
  double seconds;
};
TimeUnit time_unit(double longest) {
  return longest < 300.0     ? TimeUnit{"seconds", 1.0}
         : longest < 18000.0 ? TimeUnit{"minutes", 60.0}
                             : TimeUnit{"hours", 3600.0};
}

/// A curve with what is drawn of it.
struct Drawn {
  const Curve* curve;
  std::vector<double> x;  ///< in the axis's unit
  std::vector<double> smooth;
  std::size_t window = 1;

  bool has_smooth() const { return window > 1; }
  const std::vector<double>& main() const { return has_smooth() ? smooth : curve->y; }
};

struct Range {
  double low = kNaN, high = kNaN;
};

Range range_of(const std::vector<Drawn>& drawn, bool only_positive) {
  Range range;
  for (const Drawn& line : drawn) {
    for (const double y : line.curve->y) {
      if (std::isfinite(y) && (y > 0.0 || !only_positive)) {
        range.low = std::fmin(range.low, y);
        range.high = std::fmax(range.high, y);
      }
    }
  }
  return range;
}

/// A top that leaves out spikes: a quarter above what all but one in a hundred stay below (of fewer
/// than 100 values, one in ten), if the highest is far above that.
double top_without_spikes(const std::vector<Drawn>& drawn, double high) {
  double usual = 0.0;
  for (const Drawn& line : drawn) {
    usual = std::fmax(usual, quantile(line.curve->y, line.curve->y.size() < 100 ? 0.9 : 0.99));
  }
  return usual > 0.0 && high > 2.5 * usual ? 1.25 * usual : high;
}

class Drawing {
 public:
  Drawing(const LineChart& chart, std::size_t runs) : chart_(chart), runs_(runs) {
    double longest = 0.0;
    for (const Curve& curve : chart.curves) {
      longest = std::max(longest, quantile(curve.x, 1.0));
    }
    unit_ = chart.x == LineChart::X::kSeconds ? time_unit(longest) : TimeUnit{"step", 1.0};
    for (const Curve& curve : chart.curves) {
      if (!std::isfinite(last_value(curve.y))) {
        continue;
      }
      Drawn line{.curve = &curve, .x = curve.x, .smooth = {}};
      std::for_each(line.x.begin(), line.x.end(), [&](double& x) { x /= unit_.seconds; });
      if (curve.is_smoothed) {
        line.window = smoothing_window(curve.y.size());
        line.smooth = smoothed(curve.y, line.window);
      }
      drawn_.push_back(std::move(line));
    }
  }

  DrawnChart draw() {
    if (drawn_.empty()) {
      return {};
    }
    choose_axes();
    const std::string lines = draw_lines();  // counts what the axis leaves out
    const std::string ends = end_labels();
    std::string html =
        fmt::format("<figure class=\"chart\" data-chart=\"{}\"><figcaption><h3>{}</h3> ", chart_.id,
                    escape(chart_.title));
    html += fmt::format("<span class=\"unit\">{}</span></figcaption>\n", escape(notes()));
    html += fmt::format(
        "<div class=\"frame{}\"><div class=\"plot\" tabindex=\"0\" role=\"img\" aria-label=\"{}\">",
        ends.empty() ? ""
        : runs_ > 1  ? " letters"
                     : " named",
        escape(summary()));
    html += fmt::format(
        "<svg viewBox=\"0 0 {0} {0}\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\n", kSize);
    html += grid() + lines + "</svg><i class=\"cross\" hidden></i></div>\n" + tick_labels() + ends;
    html += fmt::format("<span class=\"x-title\">{}</span></div>\n",
                        unit_.seconds == 1.0 && chart_.x == LineChart::X::kStep
                            ? "step"
                            : fmt::format("training time, {}", unit_.name));
    html += fmt::format("<output class=\"readout\" aria-live=\"polite\">{}</output>\n",
                        escape(last_values()));
    html += folded("Table", values_table()) + "</figure>\n";
    return {html, samples()};
  }

 private:
  void choose_axes() {
    Range all = range_of(drawn_, false);
    const Range positive = range_of(drawn_, true);
    const bool log = chart_.log_above > 0.0 && std::isfinite(positive.low) &&
                     positive.high > chart_.log_above * positive.low;
    if (log) {
      all = positive;
    }
    if (chart_.cuts_spikes) {
      all.high = std::min(all.high, top_without_spikes(drawn_, all.high));
    }
    if (chart_.from_zero && !log) {
      all.low = std::min(all.low, 0.0);
      all.high = all.high == 0.0 ? 1.0 : all.high;
    }
    y_.emplace(all.low, all.high, log ? Axis::Scale::kLog : Axis::Scale::kLinear, true);
    Range along;
    for (const Drawn& line : drawn_) {
      along.low = std::fmin(along.low, quantile(line.x, 0.0));
      along.high = std::fmax(along.high, quantile(line.x, 1.0));
    }
    x_.emplace(chart_.x == LineChart::X::kStep
                   ? Axis::of_steps(along.low, along.high)
                   : Axis(0.0, along.high > 0.0 ? along.high : 1.0, Axis::Scale::kLinear, false));
  }

  std::string grid() const {
    std::string path;
    for (const Tick& tick : y_->ticks()) {
      path += fmt::format("M0 {:.1f}H{}", kSize * (1.0 - y_->position(tick.value)), kSize);
    }
    return fmt::format("<path class=\"grid\" d=\"{}\"/>\n", path);
  }

  /// The places of `values` as a path; a hole, and a value off a log axis, lifts the pen. A value
  /// alone between holes becomes a dot.
  std::string path(const Drawn& line, const std::vector<double>& values,
                   const std::vector<std::size_t>& places) const {
    std::string path;
    bool down = false, alone = false;
    for (const std::size_t place : places) {
      const double x = x_->position(line.x[place]), y = y_->position(values[place]);
      if (!std::isfinite(y) || !std::isfinite(x)) {
        path += alone ? "h.01" : "";
        down = alone = false;
        continue;
      }
      path += fmt::format("{}{:.1f} {:.1f}", down ? "L" : "M", kSize * x,
                          kSize * (1.0 - std::clamp(y, 0.0, 1.02)));
      alone = !down;
      down = true;
    }
    return path + (alone ? "h.01" : "");
  }

  std::string draw_lines() {
    std::string svg;
    for (std::size_t i = 0; i < drawn_.size(); ++i) {
      const Drawn& line = drawn_[i];
      const std::vector<double>& raw = line.curve->y;
      if (line.has_smooth()) {
        svg += fmt::format("<path class=\"raw r{}\" d=\"{}\"/>\n", line.curve->run,
                           path(line, raw, extreme_places(raw, kPlaces)));
      }
      for (const double y : raw) {
        holes_ += std::isfinite(y) ? 0 : 1;
        beyond_ += std::isfinite(y) && y_->position(y) > 1.0 + 1e-9 ? 1 : 0;
      }
    }
    // Curves that coincide: each is drawn thinner over the one before it, and all can be seen.
    for (std::size_t i = 0; i < drawn_.size(); ++i) {
      const Drawn& line = drawn_[i];
      const double width =
          1.8 + 3.4 * static_cast<double>(runs_ - 1 - line.curve->run) / static_cast<double>(runs_);
      const auto places = line.has_smooth() ? spread_places(line.smooth.size(), kPlaces)
                                            : extreme_places(line.curve->y, kPlaces);
      const std::string d = path(line, line.main(), places);
      svg += fmt::format("<path class=\"line{} r{}\" style=\"stroke-width:{:.1f}px\" d=\"{}\"/>\n",
                         line.curve->is_sparse ? " sparse" : "", line.curve->run, width, d);
      if (line.curve->is_sparse || line.curve->y.size() < 20) {
        svg += fmt::format("<path class=\"dots r{}\" d=\"{}\"/>\n", line.curve->run,
                           dots(line, places));
      }
    }
    return svg;
  }

  std::string dots(const Drawn& line, const std::vector<std::size_t>& places) const {
    std::string path;
    for (const std::size_t place : places) {
      const double y = y_->position(line.main()[place]);
      if (std::isfinite(y) && y <= 1.0 + 1e-9) {
        path += fmt::format("M{:.1f} {:.1f}h.01", kSize * x_->position(line.x[place]),
                            kSize * (1.0 - y));
      }
    }
    return path;
  }

  std::string tick_labels() const {
    std::string html = "<div class=\"yticks\">";
    for (const Tick& tick : y_->ticks()) {
      html += fmt::format("<span class=\"y\" style=\"top:{:.2f}%\">{}</span>",
                          100.0 * (1.0 - y_->position(tick.value)), tick.label);
    }
    html += "</div><div class=\"along\">";
    for (const Tick& tick : x_->ticks()) {
      html += fmt::format("<span class=\"x\" style=\"left:{:.2f}%\">{}</span>",
                          100.0 * x_->position(tick.value), tick.label);
    }
    return html + "</div>\n";
  }

  /// Names at the ends of the lines, moved apart where they would overlap. None for a line alone.
  std::string end_labels() const {
    if (drawn_.size() < 2) {
      return "";
    }
    struct Label {
      const Drawn* line;
      double top;
    };
    std::vector<Label> labels;
    for (const Drawn& line : drawn_) {
      if (runs_ > 1 && line.curve->is_sparse) {
        continue;  // dashed lines have their run's colour
      }
      const double end = y_->position(last_value(line.main()));
      labels.push_back(
          {&line, 100.0 * (1.0 - std::clamp(std::isfinite(end) ? end : 0.0, 0.0, 1.0))});
    }
    std::stable_sort(labels.begin(), labels.end(),
                     [](const Label& a, const Label& b) { return a.top < b.top; });
    for (std::size_t i = 1; i < labels.size(); ++i) {
      labels[i].top = std::max(labels[i].top, labels[i - 1].top + kLabelGap);
    }
    double below = 100.0;
    for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
      label->top = std::min(label->top, below);
      below = label->top - kLabelGap;
    }
    std::string html = "<div class=\"ends\">";
    for (const Label& label : labels) {
      const Curve& curve = *label.line->curve;
      html += fmt::format("<span class=\"end r{}\" style=\"top:{:.2f}%;left:{:.2f}%\">{}</span>",
                          curve.run, label.top, 100.0 * x_->position(last_place(*label.line)),
                          escape(runs_ > 1 ? letter(curve.run) : curve.name));
    }
    return html + "</div>\n";
  }

  /// Where a line ends.
  static double last_place(const Drawn& line) {
    const std::vector<double>& y = line.curve->y;
    const auto holes =
        std::find_if(y.rbegin(), y.rend(), [](double v) { return std::isfinite(v); });
    return line.x[static_cast<std::size_t>(y.rend() - holes) - 1];
  }

  std::string name_of(const Curve& curve) const {
    return runs_ > 1 ? letter(curve.run) + (curve.is_sparse ? " " + curve.name : "") : curve.name;
  }

  std::string notes() const {
    std::string text = chart_.unit;
    const auto add = [&](const std::string& note) { text += (text.empty() ? "" : " · ") + note; };
    if (y_->is_log()) {
      add("logarithmic");
    }
    std::size_t least = 0, most = 0;
    for (const Drawn& line : drawn_) {
      if (line.has_smooth()) {
        least = least == 0 ? line.window : std::min(least, line.window);
        most = std::max(most, line.window);
      }
    }
    if (most > 1) {
      add(least == most ? fmt::format("bold: mean of {} steps", most)
                        : fmt::format("bold: mean of {} to {} steps", least, most));
    }
    if (runs_ > 1 && std::any_of(drawn_.begin(), drawn_.end(),
                                 [](const Drawn& line) { return line.curve->is_sparse; })) {
      add("dashed: held out");
    }
    if (beyond_ > 0) {
      add(fmt::format("{} value{} above the axis", beyond_, beyond_ == 1 ? "" : "s"));
    }
    if (holes_ > 0) {
      add(fmt::format("{} step{} without a value", holes_, holes_ == 1 ? "" : "s"));
    }
    return text;
  }

  std::string summary() const {
    std::string text = fmt::format("{} over {}.", chart_.title, unit_.name);
    for (const Drawn& line : drawn_) {
      const auto first = std::find_if(line.main().begin(), line.main().end(),
                                      [](double y) { return std::isfinite(y); });
      text += fmt::format(" {}: from {} to {}.", name_of(*line.curve), value_text(*first),
                          value_text(last_value(line.main())));
    }
    return text + " Arrow keys read values.";
  }

  std::string last_values() const {
    std::string text = "last:";
    for (const Drawn& line : drawn_) {
      text += fmt::format("  {} {}", name_of(*line.curve), value_text(last_value(line.curve->y)));
    }
    return text;
  }

  std::string values_table() const {
    std::vector<std::vector<Cell>> rows;
    for (const Drawn& line : drawn_) {
      for (const std::size_t place : spread_places(line.x.size(), kTableRows)) {
        rows.push_back({text_cell(name_of(*line.curve)), count_cell(line.x[place]),
                        number_cell(line.curve->y[place], 6)});
        if (line.has_smooth()) {
          rows.back().push_back(number_cell(line.smooth[place], 6));
        }
      }
    }
    std::vector<std::string> head = {"curve", unit_.name, "value"};
    if (std::any_of(drawn_.begin(), drawn_.end(), [](const Drawn& l) { return l.has_smooth(); })) {
      head.emplace_back("mean");
    }
    return table(chart_.title, head, rows);
  }

  /// {"x": ..., "lines": [{"name", "run", "x": [], "y": [], "at": []}]}; `at` is where on the plot,
  /// in thousandths from the left.
  std::string samples() const {
    nlohmann::ordered_json lines = nlohmann::ordered_json::array();
    for (const Drawn& line : drawn_) {
      std::vector<std::string> x, y;
      std::vector<int> at;
      for (const std::size_t place : spread_places(line.x.size(), kSamples)) {
        x.push_back(count_text(line.x[place]));
        y.push_back(value_text(line.curve->y[place], 5) +
                    (line.has_smooth() ? " (mean " + value_text(line.smooth[place], 5) + ")" : ""));
        at.push_back(static_cast<int>(std::lround(kSize * x_->position(line.x[place]))));
      }
      lines.push_back({{"name", name_of(*line.curve)}, {"x", x}, {"y", y}, {"at", at}});
    }
    return nlohmann::ordered_json({{"id", chart_.id}, {"unit", unit_.name}, {"lines", lines}})
        .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  const LineChart& chart_;
  std::size_t runs_;  ///< on the page
  TimeUnit unit_{};
  std::vector<Drawn> drawn_;
  std::optional<Axis> x_, y_;
  std::size_t beyond_ = 0;  ///< values above the axis
  std::size_t holes_ = 0;   ///< places without a value
};

}  // namespace

DrawnChart draw(const LineChart& chart, std::size_t runs) { return Drawing(chart, runs).draw(); }

std::string letter(std::size_t run) { return std::string(1, static_cast<char>('A' + run)); }

}  // namespace tandem::report
