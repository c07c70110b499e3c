#include "tools/plan/against.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "core/error.h"
#include "train/data/source.h"
#include "train/plan/predict.h"
#include "train/state.h"
#include "train/traffic.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::ifstream open(const fs::path& file) {
  std::ifstream in(file);
  if (!in) {
    throw DataError(fmt::format(
        "--against: {} cannot be read. Name the directory of a run that has taken some steps.",
        file.string()));
  }
  return in;
}

json read_traffic(const fs::path& directory) {
  const fs::path file = directory / "traffic.json";
  std::ifstream in = open(file);
  json traffic = json::parse(in, nullptr, /*allow_exceptions=*/false);
  for (const char* key : {"first_step", "last_step", "micro_batches", "rows", "phases", "labels"}) {
    if (!traffic.is_object() || !traffic.contains(key)) {
      throw DataError(fmt::format("--against: {} has no `{}`", file.string(), key));
    }
  }
  return traffic;
}

struct Measured {
  double step_ms = 0.0;
  double exposed_ms = 0.0;
  double tokens = 0.0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Medians over the steps behind `first`, which builds primitives and touches memory.
Measured read_metrics(const fs::path& directory, std::int64_t first) {
  const fs::path file = directory / "metrics.jsonl";
  std::ifstream in = open(file);
  std::vector<double> steps, exposed, tokens;
  for (std::string line; std::getline(in, line);) {
    const json step = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (step.is_object() && step.contains("step_ms") && step["step"] > first) {
      steps.push_back(step["step_ms"]);
      exposed.push_back(step["comm_exposed_ms"]);
      tokens.push_back(step["tokens"]);
    }
  }
  if (steps.empty()) {
    throw DataError(fmt::format("--against: {} has no step behind the first", file.string()));
  }
  return {median(steps), median(exposed), median(tokens)};
}

using Counts = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;  // calls, bytes

std::string name(std::string_view group, std::string_view op, std::string_view dtype,
                 std::string_view label) {
  return fmt::format("{} {} {} `{}`", group, op, dtype, label);
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
  const json traffic = read_traffic(directory);
  const std::int64_t first = traffic["first_step"];
  const std::int64_t steps = traffic["last_step"].get<std::int64_t>() - first + 1;
  const Measured measured = read_metrics(directory, first);
  const Prediction prediction =
      predict(config, hardware,
              {.rows = traffic["rows"].get<double>() / traffic["micro_batches"].get<double>(),
               .tokens = measured.tokens});

  Comparison result{.run = directory};
  result.times.push_back({"step", prediction.time.total() * 1e3, measured.step_ms});
  result.times.push_back(
      {"exposed communication", prediction.time.exposed() * 1e3, measured.exposed_ms});
  for (const StepTime::Phase& phase : prediction.time.phases) {
    for (const json& range : traffic["phases"]) {
      const std::string path = range["phase"];
      if (path == "step/" + phase.name || path == "step/micro-batch/" + phase.name) {
        result.times.push_back({phase.name, phase.seconds * 1e3,
                                range["ms"].get<double>() / static_cast<double>(steps)});
      }
    }
  }

  Counts counts = derived(config, steps, {traffic["micro_batches"], traffic["rows"]});
  result.labels = counts.size();
  for (auto& [label, count] : counts) {
    count = {-count.first, -count.second};
  }
  for (const json& label : traffic["labels"]) {
    if (label["phase"] == "step") {
      auto& count =
          counts[name(label["group"].get<std::string>(), label["op"].get<std::string>(),
                      label["dtype"].get<std::string>(), label["label"].get<std::string>())];
      count.first += label["calls"].get<std::int64_t>();
      count.second += label["bytes"].get<std::int64_t>();
    }
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
