#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "core/error.h"
#include "tools/report/bars.h"
#include "tools/report/html.h"
#include "tools/report/predicted.h"
#include "tools/report/sections.h"
#include "tools/report/summary.h"

namespace tandem::report {

namespace {

/// "layers.3 g.forward" -> "layers.* g.forward": blocks are alike.
std::string without_numbers(const std::string& label) {
  std::string text;
  for (std::size_t at = 0; at < label.size(); ++at) {
    const bool begins =
        std::isdigit(static_cast<unsigned char>(label[at])) != 0 && at > 0 && label[at - 1] == '.';
    if (!begins) {
      text += label[at];
      continue;
    }
    text += '*';
    while (at + 1 < label.size() && std::isdigit(static_cast<unsigned char>(label[at + 1])) != 0) {
      ++at;
    }
  }
  return text;
}

std::vector<TrafficLine> by_label(const std::vector<TrafficLine>& lines, const char* phase) {
  std::vector<TrafficLine> sums;
  for (const TrafficLine& line : lines) {
    if (line.phase != phase) {
      continue;
    }
    const std::string label = without_numbers(line.label);
    const auto same = std::find_if(sums.begin(), sums.end(), [&](const TrafficLine& sum) {
      return sum.label == label && sum.group == line.group && sum.op == line.op &&
             sum.dtype == line.dtype;
    });
    if (same == sums.end()) {
      sums.push_back(line);
      sums.back().label = label;
      continue;
    }
    same->calls += line.calls;
    same->bytes += line.bytes;
    same->sent_bytes += line.sent_bytes;
    same->ms += line.ms;
    same->exposed_ms += line.exposed_ms;
  }
  std::stable_sort(sums.begin(), sums.end(), [](const TrafficLine& a, const TrafficLine& b) {
    return a.exposed_ms > b.exposed_ms;
  });
  return sums;
}

std::string traffic_table(const RunData& run) {
  const std::vector<TrafficLine> lines = by_label(run.traffic.lines, "step");
  const double steps = run.traffic.steps();
  double most = 0.0;
  for (const TrafficLine& line : lines) {
    most = std::max(most, line.sent_bytes);
  }
  std::vector<std::vector<Cell>> rows;
  TrafficLine total;
  for (const TrafficLine& line : lines) {
    rows.push_back({text_cell(line.label),
                    text_cell(fmt::format("{} of {}", line.group, line.ranks)),
                    text_cell(line.op),
                    text_cell(line.dtype),
                    count_cell(line.calls / steps),
                    figure_cell(bytes_figure(line.sent_bytes / steps)),
                    {cell_bar(most > 0.0 ? line.sent_bytes / most : 0.0), false},
                    number_cell(line.ms / steps, 3),
                    number_cell(line.exposed_ms / steps, 3)});
    total.calls += line.calls;
    total.sent_bytes += line.sent_bytes;
    total.ms += line.ms;
    total.exposed_ms += line.exposed_ms;
  }
  if (rows.empty()) {
    return "<p>No collective: this layout has one rank.</p>\n";
  }
  rows.push_back({text_cell("all"), text_cell(""), text_cell(""), text_cell(""),
                  count_cell(total.calls / steps),
                  figure_cell(bytes_figure(total.sent_bytes / steps)), text_cell(""),
                  number_cell(total.ms / steps, 3), number_cell(total.exposed_ms / steps, 3)});
  return table(fmt::format("Rank 0, per step, mean of steps {} to {}", run.traffic.first_step,
                           run.traffic.last_step),
               {"label", "group", "operation", "type", "calls", "sent", "", "ms", "exposed ms"},
               rows);
}

struct Count {
  double calls = 0.0, bytes = 0.0;
};

/// Calls and bytes of the steps, "all_reduce in tp".
std::map<std::string, Count> by_group(const std::vector<TrafficLine>& lines) {
  std::map<std::string, Count> counts;
  for (const TrafficLine& line : lines) {
    if (line.phase == "step") {
      Count& count = counts[fmt::format("{} in {}", line.op, line.group)];
      count.calls += line.calls;
      count.bytes += line.bytes;
    }
  }
  return counts;
}

}  // namespace

Section traffic_section(const std::vector<RunData>& runs) {
  Section section{"traffic", "Traffic", "", {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].traffic.lines.empty()) {
      continue;
    }
    section.html += runs.size() == 1 ? traffic_table(runs[i])
                                     : folded(run_name(runs, i), traffic_table(runs[i]), i == 0);
  }
  if (!section.html.empty()) {
    section.html +=
        "<p class=\"note\">sent: bytes that a ring moves per rank. Labels of like blocks are "
        "summed: "
        "layers.*. Exposed: the time in which the rank could not compute.</p>\n";
  }
  return section;
}

Section predicted_section(const std::vector<RunData>& runs, const std::string& hardware) {
  Section section{"predicted", "Predicted and counted", "", {}};
  std::vector<std::vector<Cell>> rows, times;
  std::string machine;
  const auto add_row = [&](const std::string& run, const std::string& what, double predicted,
                           double counted) {
    rows.push_back({text_cell(run), text_cell(what), count_cell(predicted), count_cell(counted),
                    count_cell(counted - predicted)});
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunData& run = runs[i];
    if (run.config_text.empty() || (run.memory.empty() && run.traffic.first_step == 0)) {
      continue;
    }
    std::optional<Config> config;
    try {
      config = config_of(run);
    } catch (const ConfigError& error) {
      section.html +=
          fmt::format("<p>{}: {}</p>\n", escape(run_name(runs, i)), escape(error.what()));
      continue;
    }
    const Predicted predicted = predicted_of(run, *config, hardware);
    for (const auto& [group, count] : by_group(predicted.traffic)) {
      const Count counted = by_group(run.traffic.lines)[group];
      add_row(run_name(runs, i), group + ": calls", count.calls, counted.calls);
      add_row(run_name(runs, i), group + ": bytes", count.bytes, counted.bytes);
    }
    for (const Comparison::Time& time : predicted.times) {
      machine = predicted.machine;
      times.push_back(
          {text_cell(run_name(runs, i)), text_cell(time.what), number_cell(time.predicted_ms),
           number_cell(time.measured_ms),
           figure_cell(
               time.measured_ms > 0.0
                   ? fmt::format("{:+.0f} %", 100.0 * (time.predicted_ms / time.measured_ms - 1.0))
                   : "")});
    }
    if (!predicted.no_times.empty()) {
      section.html += fmt::format("<p class=\"note\">{}: no times are predicted: {}</p>\n",
                                  escape(run_name(runs, i)), escape(predicted.no_times));
    }
    for (const auto& [category, bytes] : predicted.memory) {
      const auto counted = std::find_if(run.memory.begin(), run.memory.end(),
                                        [&](const auto& part) { return part.first == category; });
      if (counted != run.memory.end()) {
        add_row(run_name(runs, i), "memory: " + category + ", bytes", bytes, counted->second);
      }
    }
  }
  if (!times.empty()) {
    section.html += table("Milliseconds of a step of rank 0; predicted for " + machine,
                          {"run", "what", "predicted", "measured", "difference"}, times);
  }
  if (!rows.empty()) {
    section.html += table("Rank 0, all steps that traffic.json covers",
                          {"run", "what", "predicted", "counted", "difference"}, rows);
  }
  return section;
}

}  // namespace tandem::report
