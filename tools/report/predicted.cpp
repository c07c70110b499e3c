#include "tools/report/predicted.h"

#include <algorithm>
#include <optional>

#include "core/arena.h"
#include "train/data/source.h"
#include "train/plan/hardware.h"
#include "train/state.h"
#include "train/traffic.h"

namespace tandem::report {

namespace {

void add(std::vector<TrafficLine>& lines, const std::vector<Traffic>& traffic) {
  for (const Traffic& line : traffic) {
    lines.push_back({.phase = std::string(name_of(line.key.phase)),
                     .group = std::string(line.key.group.view()),
                     .op = std::string(name_of(line.key.op)),
                     .dtype = std::string(name_of(line.key.dtype)),
                     .label = std::string(line.key.label.view()),
                     .ranks = line.key.ranks,
                     .calls = static_cast<double>(line.calls),
                     .bytes = static_cast<double>(line.bytes)});
  }
}

}  // namespace

Config config_of(const RunData& run) {
  return parse_config(run.config_text, {.file = run.directory + "/config.yaml"});
}

Predicted predicted_of(const RunData& run, const Config& config, const std::string& hardware) {
  const Layout layout = {config.parallel.tp, config.parallel.dp, 0};
  const Precision precision = precision_of(config);
  Arena arena;
  const TrainState state(config, layout, precision, max_rows(config), arena);
  Predicted predicted;
  for (std::size_t c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    predicted.memory.emplace_back(name_of(category), static_cast<double>(arena.bytes(category)));
  }
  if (run.traffic.first_step > 0) {
    add(predicted.traffic, run_traffic(config, layout, precision, state.store,
                                       run.traffic.last_step - run.traffic.first_step + 1,
                                       {run.traffic.micro_batches, run.traffic.rows}));
    // What was measured here says nothing of a run on a GPU, nor of one elsewhere that says so.
    const auto device = std::find_if(run.startup.begin(), run.startup.end(),
                                     [](const auto& row) { return row.first == "device"; });
    const bool is_cpu = device != run.startup.end() && device->second.starts_with("cpu:");
    std::optional<Hardware> machine;
    if (!hardware.empty()) {  // asked for: a page without it would not be what was asked for
      machine = load_hardware(hardware, precision.storage);
    }
    try {
      if (!machine && !is_cpu) {
        throw ConfigError("the run was on no CPU: name its machine with --hardware");
      }
      if (!machine) {
        machine = load_hardware("", precision.storage);
      }
      predicted.machine = machine->name;
      predicted.times = compare_with_run(run.directory, config, *machine).times;
    } catch (const Error& error) {
      predicted.no_times = error.what();
    }
  }
  return predicted;
}

}  // namespace tandem::report
