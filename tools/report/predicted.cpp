#include "tools/report/predicted.h"

#include "core/arena.h"
#include "train/config.h"
#include "train/data/source.h"
#include "train/state.h"
#include "train/traffic.h"

namespace tandem::report {

namespace {

void add(std::vector<TrafficLine>& lines, const std::vector<Traffic>& traffic, double times) {
  for (const Traffic& line : traffic) {
    lines.push_back({.phase = std::string(name_of(line.key.phase)),
                     .group = std::string(line.key.group.view()),
                     .op = std::string(name_of(line.key.op)),
                     .dtype = std::string(name_of(line.key.dtype)),
                     .label = std::string(line.key.label.view()),
                     .ranks = line.key.ranks,
                     .calls = times * static_cast<double>(line.calls),
                     .bytes = times * static_cast<double>(line.bytes)});
  }
}

}  // namespace

Predicted predicted_of(const RunData& run) {
  const Config config = parse_config(run.config_text, {.file = run.directory + "/config.yaml"});
  const Layout layout = {config.parallel.tp, config.parallel.dp, 0};
  const Precision precision = precision_of(config);
  Arena arena;
  const TrainState state(config, layout, precision, max_rows(config), arena);
  Predicted predicted;
  for (std::size_t c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    predicted.memory.emplace_back(name_of(category), static_cast<double>(arena.bytes(category)));
  }
  if (!run.traffic.lines.empty()) {
    // All that goes with micro-batches once, and what every step has besides for the other steps.
    const StepRows rows = {run.traffic.micro_batches, run.traffic.rows};
    const auto of = [&](const StepRows& of_rows) {
      return step_traffic(config, layout, precision, state.store, of_rows);
    };
    add(predicted.traffic, of(rows), 1.0);
    add(predicted.traffic, of({.micro_batches = 0, .rows = 0}), run.traffic.steps() - 1.0);
  }
  return predicted;
}

}  // namespace tandem::report
