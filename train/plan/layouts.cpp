#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "train/plan/predict.h"

namespace tandem {

namespace {

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d == 0) {
      found.push_back(d);
      if (d != n / d) {
        found.push_back(n / d);
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::vector<Config> legal_layouts(const Config& config, int world) {
  std::vector<Config> layouts;
  std::string refusal;
  // The config's own rules decide, with every key but those of the layout as it is.
  const std::string text = to_yaml(config);
  const auto consider = [&](int tp, std::int64_t micro_batch, bool sequence_parallel, int zero) {
    try {
      layouts.push_back(parse_config(
          text,
          {.file = config.name,
           .overrides = {
               "parallel.tp=" + std::to_string(tp), "parallel.dp=" + std::to_string(world / tp),
               "parallel.sequence_parallel=" + std::string(sequence_parallel ? "true" : "false"),
               "parallel.zero=" + std::to_string(zero),
               "train.micro_batch=" + std::to_string(micro_batch)}}));
    } catch (const ConfigError& error) {
      refusal = error.what();
    }
  };
  for (const std::int64_t tp : divisors(world)) {
    const std::int64_t dp = world / tp;
    if (config.model.ffn % tp != 0 || config.train.global_batch % dp != 0) {
      continue;  // whatever else is chosen
    }
    for (const std::int64_t micro_batch : divisors(config.train.global_batch / dp)) {
      for (const bool sequence_parallel : {false, true}) {
        for (const int zero : {0, 1}) {
          if ((tp > 1 || !sequence_parallel) && (dp > 1 || zero == 0)) {
            consider(static_cast<int>(tp), micro_batch, sequence_parallel, zero);
          }
        }
      }
    }
  }
  if (layouts.empty()) {
    throw ConfigError("no layout of " + std::to_string(world) + " ranks is possible" +
                      (refusal.empty()
                           ? ": tp must divide model.ffn = " + std::to_string(config.model.ffn) +
                                 ", and dp = ranks / tp train.global_batch = " +
                                 std::to_string(config.train.global_batch) +
                                 ". Write other sizes, or --world."
                           : ". The last one that was tried: " + refusal));
  }
  return layouts;
}

}  // namespace tandem
