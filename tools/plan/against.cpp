#include "tools/plan/against.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/statistics.h"
#include "train/data/source.h"
#include "train/plan/predict.h"
#include "train/state.h"
#include "train/traffic.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// What `read` makes of a file's JSON; another type or a missing key is a DataError.
template <typename Read>
auto reading(const fs::path& file, const Read& read) {
  try {
    return read();
  } catch (const json::exception& error) {
    throw DataError(fmt::format("{} is not as a run writes it: {}", file.string(), error.what()));
  }
}

std::ifstream open(const fs::path& file) {
  std::ifstream in(file);
  if (!in) {
    throw DataError(
        fmt::format("{} cannot be read. Name the directory of a run that has taken some steps.",
                    file.string()));
  }
  return in;
}

using Counts = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;  // calls, bytes

std::string name(std::string_view group, std::string_view op, std::string_view dtype,
                 std::string_view label) {
  return fmt::format("{} {} {} `{}`", group, op, dtype, label);
}

/// What is used of traffic.json.
struct Counted {
  std::int64_t first_step = 0;
  std::int64_t steps = 0;
  StepRows rows;                                       ///< of all steps
  std::vector<std::pair<std::string, double>> phases;  ///< ms of all steps
  Counts labels;                                       ///< of steps
};

Counted read_traffic(const fs::path& directory) {
  const fs::path file = directory / "traffic.json";
  std::ifstream in = open(file);
  Counted counted = reading(file, [&] {
    const json traffic = json::parse(in);
    Counted read{.first_step = traffic.at("first_step"),
                 .steps = traffic.at("last_step").get<std::int64_t>() -
                          traffic.at("first_step").get<std::int64_t>() + 1,
                 .rows = {traffic.at("micro_batches"), traffic.at("rows")}};
    for (const json& phase : traffic.at("phases")) {
      read.phases.emplace_back(phase.at("phase"), phase.at("ms"));
    }
    const auto text = [](const json& label, const char* key) {
      return label.at(key).get<std::string>();
    };
    for (const json& label : traffic.at("labels")) {
      if (text(label, "phase") == "step") {
        auto& count = read.labels[name(text(label, "group"), text(label, "op"),
                                       text(label, "dtype"), text(label, "label"))];
        count.first += label.at("calls").get<std::int64_t>();
        count.second += label.at("bytes").get<std::int64_t>();
      }
    }
    return read;
  });
  if (counted.steps < 1 || counted.rows.micro_batches < 1) {
    throw DataError(file.string() + " counts no step");
  }
  return counted;
}

struct Measured {
  double step_ms = 0.0;
  double exposed_ms = 0.0;
  double tokens = 0.0;
};

/// Medians over the steps behind `first`, which builds primitives and touches memory.
Measured read_metrics(const fs::path& directory, std::int64_t first) {
  const fs::path file = directory / "metrics.jsonl";
  std::ifstream in = open(file);
  std::vector<double> steps, exposed, tokens;
  for (std::string line; std::getline(in, line);) {
    // The last line of a run that was killed may be cut off.
    const json step = json::parse(line, nullptr, /*allow_exceptions=*/false);
    reading(file, [&] {
      if (step.is_object() && step.contains("step_ms") &&
          step.at("step").get<std::int64_t>() > first) {
        steps.push_back(step.at("step_ms"));
        exposed.push_back(step.at("comm_exposed_ms"));
        tokens.push_back(step.at("tokens"));
      }
    });
  }
  if (steps.empty()) {
    throw DataError(
        fmt::format("{} has no step behind the first, which is never as fast: the run began, or "
                    "went on, with step {}",
                    file.string(), first));
  }
  return {median(steps), median(exposed), median(tokens)};
}

/// Of `steps` steps with these rows in all.
Counts derived(const Config& config, std::int64_t steps, const StepRows& rows) {
  const Layout layout = {config.parallel.tp, config.parallel.dp, 0};
  const Precision precision = precision_of(config);
  Arena arena;
  const TrainState state(config, layout, precision, max_rows(config), arena);
  Counts counts;
  for (const auto& [key, calls, bytes] :
       run_traffic(config, layout, precision, state.store, steps, rows)) {
    counts[name(key.group.view(), name_of(key.op), name_of(key.dtype), key.label.view())] = {calls,
                                                                                             bytes};
  }
  return counts;
}

}  // namespace

Comparison compare_with_run(const std::string& directory, const Config& config,
                            const Hardware& hardware) {
  const Counted counted = read_traffic(directory);
  const Measured measured = read_metrics(directory, counted.first_step);
  const Prediction prediction = predict(config, hardware,
                                        {.rows = static_cast<double>(counted.rows.rows) /
                                                 static_cast<double>(counted.rows.micro_batches),
                                         .tokens = measured.tokens});

  Comparison result{.run = directory};
  result.times.push_back({"step", prediction.time.total() * 1e3, measured.step_ms});
  result.times.push_back(
      {"exposed communication", prediction.time.exposed() * 1e3, measured.exposed_ms});
  for (const StepTime::Phase& phase : prediction.time.phases) {
    for (const auto& [path, ms] : counted.phases) {
      if (path == "step/" + phase.name || path == "step/micro-batch/" + phase.name) {
        result.times.push_back(
            {phase.name, phase.seconds * 1e3, ms / static_cast<double>(counted.steps)});
      }
    }
  }

  Counts counts = derived(config, counted.steps, counted.rows);
  result.labels = counts.size();
  for (auto& [label, count] : counts) {
    count = {-count.first, -count.second};
  }
  for (const auto& [label, count] : counted.labels) {
    counts[label].first += count.first;
    counts[label].second += count.second;
  }
  for (const auto& [label, count] : counts) {
    if (count.first != 0 || count.second != 0) {
      result.differences.push_back({label, count.first, count.second});
    }
  }
  return result;
}

std::string comparison_table(const Comparison& comparison) {
  std::string text = fmt::format("tandem plan against {}\n", comparison.run);
  text += "  ms of a step                predicted   measured  difference\n";
  for (const Comparison::Time& time : comparison.times) {
    text += fmt::format(
        "  {:<26} {:>10.2f} {:>10.2f} {:>10}\n", time.what, time.predicted_ms, time.measured_ms,
        time.measured_ms > 0.0
            ? fmt::format("{:+.0f} %", 100.0 * (time.predicted_ms / time.measured_ms - 1.0))
            : "");
  }
  text +=
      "  step and exposed communication: medians without the first step; the rest: means of all\n";
  text += comparison.differences.empty()
              ? fmt::format("  traffic: calls and bytes of all {} labels are equal\n",
                            comparison.labels)
              : fmt::format("  traffic: {} labels differ (counted - derived)\n",
                            comparison.differences.size());
  for (const Comparison::Difference& difference : comparison.differences) {
    text += fmt::format("    {}: {:+} calls, {:+} bytes\n", difference.label, difference.calls,
                        difference.bytes);
  }
  return text;
}

void write_comparison(const Comparison& comparison, const std::string& file) {
  json times = json::array(), differences = json::array();
  for (const Comparison::Time& time : comparison.times) {
    times.push_back({{"what", time.what},
                     {"predicted_ms", time.predicted_ms},
                     {"measured_ms", time.measured_ms}});
  }
  for (const Comparison::Difference& difference : comparison.differences) {
    differences.push_back(
        {{"label", difference.label}, {"calls", difference.calls}, {"bytes", difference.bytes}});
  }
  std::ofstream out(file);
  out << json{{"run", comparison.run},
              {"times", times},
              {"labels", comparison.labels},
              {"traffic_differences", differences}}
             .dump(1)
      << '\n';
  if (!out.flush()) {
    throw ConfigError("--json " + file + ": cannot be written");
  }
}

}  // namespace tandem
