#include "tools/report/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "tools/report/bars.h"
#include "tools/report/html.h"
#include "tools/report/line_chart.h"
#include "tools/report/summary.h"

namespace tandem::report {

namespace {

void add(Section& section, const LineChart& chart, std::size_t runs) {
  DrawnChart drawn = draw(chart, runs);
  if (!drawn.html.empty()) {
    section.html += drawn.html;
    section.charts.push_back(std::move(drawn.json));
  }
}

/// A curve per run of one number of metrics.jsonl, `scale` times it.
std::vector<Curve> curves_of(const std::vector<RunData>& runs, const char* column,
                             const char* along = "step", double scale = 1.0) {
  std::vector<Curve> curves;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    curves.push_back(
        {.name = "", .run = i, .x = runs[i].column(along), .y = runs[i].column(column)});
    std::for_each(curves.back().y.begin(), curves.back().y.end(), [&](double& y) { y *= scale; });
  }
  return curves;
}

std::vector<Curve> losses(const std::vector<RunData>& runs) {
  std::vector<Curve> curves = curves_of(runs, "loss");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    curves[i].name = "training";
    curves.push_back({.name = "held out",
                      .run = i,
                      .x = runs[i].evaluation_steps,
                      .y = runs[i].evaluation_losses,
                      .is_smoothed = false,
                      .is_sparse = true});
  }
  return curves;
}

/// Two charts side by side where there is room.
std::string in_columns(const std::string& html) {
  return html.empty() ? "" : "<div class=\"columns\">" + html + "</div>\n";
}

std::string milliseconds(double ms) { return value_text(ms, 3) + " ms"; }

std::string rows_table(
    const std::string& caption, const std::vector<RunData>& runs,
    const std::vector<std::string>& keys,
    const std::function<std::string(const RunData&, const std::string&)>& value) {
  std::vector<std::string> head = {""};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    head.push_back(run_name(runs, i));
  }
  std::vector<std::vector<Cell>> rows;
  for (const std::string& key : keys) {
    rows.push_back({text_cell(key)});
    for (const RunData& run : runs) {
      rows.back().push_back(text_cell(value(run, key)));
    }
  }
  return table(caption, head, rows);
}

/// The phases of a step, those inside others indented.
std::string phases_table(const RunData& run) {
  const auto step = std::find_if(run.traffic.phases.begin(), run.traffic.phases.end(),
                                 [](const PhaseTotal& phase) { return phase.path == "step"; });
  if (step == run.traffic.phases.end() || !(step->ms > 0.0)) {
    return "";
  }
  std::vector<std::vector<Cell>> rows;
  for (const PhaseTotal& phase : run.traffic.phases) {
    if (phase.path != "step" && !phase.path.starts_with("step/")) {
      continue;
    }
    const auto depth = std::count(phase.path.begin(), phase.path.end(), '/');
    const std::string name = phase.path.substr(phase.path.rfind('/') + 1);
    rows.push_back(
        {{fmt::format("<span style=\"padding-left:{}em\">{}</span>", depth, escape(name)), false},
         count_cell(phase.calls / step->calls),
         number_cell(phase.ms / step->calls, 3),
         number_cell(100.0 * phase.ms / step->ms, 2),
         {cell_bar(phase.ms / step->ms), false}});
  }
  return table(fmt::format("Phases of a step, mean of steps {} to {}", run.traffic.first_step,
                           run.traffic.last_step),
               {"phase", "calls", "ms", "% of the step", ""}, rows);
}

}  // namespace

Section warnings_section(const std::vector<RunData>& runs) {
  std::vector<std::vector<Cell>> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const Warning& warning : runs[i].warnings) {
      rows.push_back({text_cell(run_name(runs, i)), count_cell(warning.step),
                      text_cell(warning.kind), text_cell(warning.text)});
    }
  }
  return {"warnings",
          "Warnings",
          rows.empty()
              ? ""
              : table("What runs found unusual", {"run", "step", "warning", "what and why"}, rows),
          {}};
}

Section training_section(const std::vector<RunData>& runs) {
  Section section{"training", "Training", "", {}};
  add(section,
      {.id = "loss",
       .title = "Loss",
       .unit = "nats per token",
       .log_above = 4.0,
       .curves = losses(runs)},
      runs.size());
  add(section,
      {.id = "loss-time",
       .title = "Loss against time",
       .unit = "nats per token",
       .x = LineChart::X::kSeconds,
       .log_above = 4.0,
       .curves = curves_of(runs, "loss", "elapsed_s")},
      runs.size());
  add(section,
      {.id = "norm",
       .title = "Gradient norm",
       .unit = "before clipping",
       .log_above = 8.0,
       .curves = curves_of(runs, "grad_norm")},
      runs.size());
  std::vector<Curve> rates = curves_of(runs, "lr");
  std::for_each(rates.begin(), rates.end(), [](Curve& curve) { curve.is_smoothed = false; });
  add(section,
      {.id = "lr", .title = "Learning rate", .unit = "", .from_zero = true, .curves = rates},
      runs.size());
  section.html = in_columns(section.html);
  return section;
}

Section speed_section(const std::vector<RunData>& runs) {
  Section section{"speed", "Speed", "", {}};
  add(section,
      {.id = "tokens",
       .title = "Tokens per second",
       .unit = "whole job",
       .from_zero = true,
       .cuts_spikes = true,
       .curves = curves_of(runs, "tokens_per_s")},
      runs.size());
  add(section,
      {.id = "roof",
       .title = "Part of the matmul roof",
       .unit = "percent",
       .from_zero = true,
       .cuts_spikes = true,
       .curves = curves_of(runs, "roof_fraction", "step", 100.0)},
      runs.size());
  add(section,
      {.id = "step-ms",
       .title = "Time of a step",
       .unit = "ms",
       .from_zero = true,
       .cuts_spikes = true,
       .curves = curves_of(runs, "step_ms")},
      runs.size());
  add(section,
      {.id = "exposed",
       .title = "Exposed communication",
       .unit = "ms per step, rank 0",
       .from_zero = true,
       .cuts_spikes = true,
       .curves = curves_of(runs, "comm_exposed_ms")},
      runs.size());
  section.html = in_columns(section.html);
  return section;
}

Section time_section(const std::vector<RunData>& runs) {
  Section section{"time", "Where the time of a step goes", "", {}};
  std::vector<StackedBar> bars;
  std::vector<std::vector<Cell>> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Figures figures = figures_of(runs[i]);
    if (!(figures.step_ms > 0.0)) {
      continue;
    }
    const double exposed = std::isfinite(figures.exposed_ms) ? figures.exposed_ms : 0.0;
    const double data = std::isfinite(figures.data_ms) ? figures.data_ms : 0.0;
    const double rest = std::max(0.0, figures.step_ms - exposed - data);
    bars.push_back({run_name(runs, i), {rest, exposed, data}});
    rows.push_back({text_cell(run_name(runs, i)), number_cell(rest, 3), number_cell(exposed, 3),
                    number_cell(data, 3), number_cell(figures.step_ms, 3),
                    number_cell(100.0 * exposed / figures.step_ms, 2)});
  }
  if (bars.empty()) {
    return section;
  }
  section.html =
      stacked_bars("Median step of rank 0", {"computing", "exposed communication", "data"}, bars,
                   milliseconds) +
      table("Milliseconds of the median step",
            {"run", "computing", "exposed communication", "data", "step", "exposed, %"}, rows);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string phases = phases_table(runs[i]);
    if (!phases.empty()) {
      section.html += folded("Phases of " + run_name(runs, i), phases, runs.size() == 1);
    }
  }
  return section;
}

Section memory_section(const std::vector<RunData>& runs) {
  Section section{"memory", "Memory", "", {}};
  std::vector<std::string> categories;
  for (const RunData& run : runs) {
    for (const auto& [category, bytes] : run.memory) {
      if (std::find(categories.begin(), categories.end(), category) == categories.end()) {
        categories.push_back(category);
      }
    }
  }
  if (categories.empty()) {
    return section;
  }
  std::vector<StackedBar> bars;
  std::vector<std::vector<Cell>> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].memory.empty()) {
      continue;
    }
    bars.push_back({run_name(runs, i), std::vector<double>(categories.size(), 0.0)});
    rows.push_back({text_cell(run_name(runs, i))});
    for (const auto& [category, bytes] : runs[i].memory) {
      const auto at = std::find(categories.begin(), categories.end(), category);
      bars.back().parts[static_cast<std::size_t>(at - categories.begin())] = bytes;
    }
    for (const double bytes : bars.back().parts) {
      rows.back().push_back(figure_cell(bytes_figure(bytes)));
    }
    rows.back().push_back(figure_cell(
        bytes_figure(std::accumulate(bars.back().parts.begin(), bars.back().parts.end(), 0.0))));
  }
  std::vector<std::string> head = categories;
  head.insert(head.begin(), "run");
  head.emplace_back("all");
  section.html = stacked_bars("Memory of a rank by category", categories, bars, bytes_figure) +
                 table("Memory of a rank by category", head, rows);
  return section;
}

Section config_section(const std::vector<RunData>& runs) {
  Section section{"config", "Config", "", {}};
  const auto setting = [](const RunData& run, const std::string& key) { return run.setting(key); };
  if (runs.size() > 1) {
    std::vector<std::string> keys;
    for (const RunData& run : runs) {
      for (const auto& [key, value] : run.config) {
        const bool differs = std::any_of(runs.begin(), runs.end(), [&](const RunData& other) {
          return other.setting(key) != value;
        });
        if (differs && std::find(keys.begin(), keys.end(), key) == keys.end()) {
          keys.push_back(key);
        }
      }
    }
    section.html += rows_table("Settings that differ", runs, keys, setting);
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].config_text.empty()) {
      section.html += folded("config.yaml of " + run_name(runs, i),
                             "<pre tabindex=\"0\">" + escape(runs[i].config_text) + "</pre>");
    }
  }
  return section;
}

Section environment_section(const std::vector<RunData>& runs) {
  Section section{"environment", "Environment", "", {}};
  std::vector<std::string> labels;
  for (const RunData& run : runs) {
    for (const auto& [label, value] : run.startup) {
      if (std::find(labels.begin(), labels.end(), label) == labels.end()) {
        labels.push_back(label);
      }
    }
  }
  if (!labels.empty()) {
    section.html = rows_table("What the run said of itself at its start", runs, labels,
                              [](const RunData& run, const std::string& label) {
                                const auto row =
                                    std::find_if(run.startup.begin(), run.startup.end(),
                                                 [&](const auto& r) { return r.first == label; });
                                return row == run.startup.end() ? "" : row->second;
                              });
  }
  return section;
}

}  // namespace tandem::report
