#include "tools/verify/grid.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "train/state.h"

namespace tandem::verify {

namespace {

/// What the schema says of the config; empty if nothing.
std::string objection(const Config& config) {
  try {
    parse_config(to_yaml(config), {.file = "grid"});
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

}  // namespace

std::vector<GridPoint> grid_of(const Config& config) {
  std::vector<GridPoint> points;
  for (int tp = 1; tp <= config.world(); ++tp) {
    if (config.world() % tp != 0) {
      continue;
    }
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && tp == 1) {
        continue;
      }
      for (const auto& [accumulation, zero] : {std::pair{1, 0}, {2, 0}, {2, 1}}) {
        if (zero == 1 && config.world() == tp) {
          continue;
        }
        for (const auto precision :
             {PrecisionChoice::kFp32, PrecisionChoice::kBf16, PrecisionChoice::kFp16}) {
          GridPoint point{.config = config};
          point.config.parallel.tp = tp;
          point.config.parallel.dp = config.world() / tp;
          point.config.parallel.sequence_parallel = sequence_parallel;
          point.config.parallel.zero = zero;
          point.config.precision = precision;
          point.config.train.global_batch =
              config.train.micro_batch * point.config.parallel.dp * accumulation;
          point.name = fmt::format(
              "tp {} x dp {}{}{}, accumulation {}, {}", tp, point.config.parallel.dp,
              sequence_parallel ? ", sequence parallel" : "", zero == 1 ? ", ZeRO-1" : "",
              accumulation, name_of(precision_of(point.config).storage));
          point.skipped = objection(point.config);
          points.push_back(std::move(point));
        }
      }
    }
  }
  return points;
}

}  // namespace tandem::verify
