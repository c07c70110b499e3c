#include "tools/report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "tools/report/html.h"
#include "tools/report/line_chart.h"
#include "tools/report/series.h"

namespace tandem::report {

namespace {

double usual(const std::vector<double>& column) {
  const std::span<const double> all(column);
  return median(all.size() > 1 ? all.subspan(1) : all);
}

std::string percent(double share) {
  return std::isfinite(share) ? value_text(100.0 * share, 2) + " %" : value_text(share);
}

std::string bytes_or_dash(double bytes) {
  return std::isfinite(bytes) ? bytes_figure(bytes) : value_text(bytes);
}

/// The largest relative difference of the loss from that of `first`, over the steps that both have.
double largest_difference(const RunData& first, const RunData& run) {
  const auto &steps = run.column("step"), &losses = run.column("loss");
  const auto &own_steps = first.column("step"), &own_losses = first.column("loss");
  double largest = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0, j = 0; i < steps.size() && j < own_steps.size();) {
    if (steps[i] != own_steps[j]) {
      (steps[i] < own_steps[j] ? i : j) += 1;
      continue;
    }
    const double difference = std::abs(losses[i] - own_losses[j]) / std::abs(own_losses[j]);
    largest = std::isfinite(difference) ? std::fmax(largest, difference) : largest;
    ++i;
    ++j;
  }
  return largest;
}

std::string tiles(const RunData& run) {
  const Figures figures = figures_of(run);
  std::string html = "<dl class=\"tiles\">";
  const auto tile = [&](const char* name, const std::string& value, const std::string& note) {
    html += fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", name, escape(value),
                        escape(note));
  };
  tile("loss", value_text(figures.loss),
       std::isfinite(figures.valid_loss) ? value_text(figures.valid_loss) + " held out"
                                         : "at the last steps");
  tile("steps", count_text(figures.steps), seconds_text(figures.seconds) + " of training");
  tile("step", value_text(figures.step_ms, 3) + " ms",
       percent(figures.exposed_ms / figures.step_ms) + " exposed communication");
  tile("tokens per second", value_text(figures.tokens_per_s, 3), "whole job");
  tile("of the matmul roof", percent(figures.roof_fraction),
       std::isfinite(figures.mfu) ? percent(figures.mfu) + " of the data sheet" : "median step");
  if (std::isfinite(figures.memory_bytes)) {
    tile("memory per rank", bytes_figure(figures.memory_bytes), "all categories");
  }
  if (figures.skipped > 0.0) {
    tile("skipped steps", count_text(figures.skipped), "nothing was changed by them");
  }
  return html + "</dl>\n";
}

std::string comparison(const std::vector<RunData>& runs) {
  std::vector<std::vector<Cell>> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Figures figures = figures_of(runs[i]);
    rows.push_back(
        {{fmt::format("<span class=\"badge r{}\">{}</span> {}", i, letter(i), escape(runs[i].name)),
          false},
         text_cell(layout_text(runs[i])),
         count_cell(figures.steps),
         number_cell(figures.loss),
         number_cell(figures.valid_loss),
         i == 0 ? figure_cell("–") : number_cell(largest_difference(runs[0], runs[i]), 2),
         number_cell(figures.step_ms, 3),
         number_cell(figures.tokens_per_s, 3),
         figure_cell(percent(figures.roof_fraction)),
         figure_cell(percent(figures.exposed_ms / figures.step_ms)),
         figure_cell(bytes_or_dash(figures.memory_bytes)),
         count_cell(figures.skipped)});
  }
  return table("Runs compared",
               {"run", "layout", "steps", "loss", "held out", "differs from A by at most (rel.)",
                "step, ms", "tokens/s", "of roof", "exposed", "memory per rank", "skipped"},
               rows);
}

}  // namespace

Figures figures_of(const RunData& run) {
  Figures figures;
  const std::vector<double>& losses = run.column("loss");
  const std::size_t window = smoothing_window(losses.size());
  const auto sum_of_bytes = [](double sum, const auto& part) { return sum + part.second; };
  figures.steps = run.count() == 0 ? 0.0 : run.column("step").back();
  figures.seconds = run.count() == 0 ? 0.0 : run.column("elapsed_s").back();
  figures.loss = window == 1 ? last_value(losses)
                             : smoothed(std::span(losses).last(window), 2 * window)[window / 2];
  figures.valid_loss = last_value(run.evaluation_losses);
  figures.step_ms = usual(run.column("step_ms"));
  figures.tokens_per_s = usual(run.column("tokens_per_s"));
  figures.roof_fraction = usual(run.column("roof_fraction"));
  figures.mfu = usual(run.column("mfu"));
  figures.data_ms = usual(run.column("data_ms"));
  figures.exposed_ms = usual(run.column("comm_exposed_ms"));
  figures.memory_bytes =
      run.memory.empty() ? std::numeric_limits<double>::quiet_NaN()
                         : std::accumulate(run.memory.begin(), run.memory.end(), 0.0, sum_of_bytes);
  figures.skipped = last_value(run.column("skipped_steps"));
  return figures;
}

std::string layout_text(const RunData& run) {
  const std::string tp = run.setting("parallel.tp"), dp = run.setting("parallel.dp");
  if (tp.empty() || dp.empty()) {
    return "";
  }
  const std::string zero = run.setting("parallel.zero");
  return fmt::format(
      "tp {} x dp {}{}{}", tp, dp, zero.empty() || zero == "0" ? "" : ", ZeRO-" + zero,
      run.setting("parallel.sequence_parallel") == "true" ? ", sequence parallel" : "");
}

std::string run_name(const std::vector<RunData>& runs, std::size_t run) {
  return runs.size() == 1 ? runs[run].name : letter(run) + "  " + runs[run].name;
}

std::string summary_html(const std::vector<RunData>& runs) {
  return runs.size() == 1 ? tiles(runs[0]) : comparison(runs);
}

}  // namespace tandem::report
