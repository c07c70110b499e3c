#include "train/plan/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "train/data/source.h"
#include "train/memory.h"
#include "train/state.h"
#include "train/traffic.h"

namespace tandem {

namespace {

std::string text(const ParallelConfig& parallel) {
  return fmt::format("tp {}{}", parallel.tp,
                     parallel.sequence_parallel ? " with token shards" : "");
}

/// The largest part of the time that `loser` takes longer than `best`, in words.
std::string reason(const Prediction& loser, const Prediction& best) {
  const auto ms = [](double seconds) {
    return seconds < 1.0 ? fmt::format("{:.3g} ms", seconds * 1e3)
                         : fmt::format("{:.0f} ms", seconds * 1e3);
  };
  const double compute = loser.time.compute - best.time.compute;
  const double tp = loser.time.exposed_tp - best.time.exposed_tp;
  const double dp = loser.time.exposed_dp - best.time.exposed_dp;
  const double most = std::max({compute, tp, dp});
  if (most <= 0.01 * best.time.total()) {
    return "as fast, to a hundredth";
  }
  const Config& config = loser.config;
  if (most == tp) {
    return fmt::format("{} exposes {} of tensor-parallel collectives, {} a block and micro-batch",
                       text(config.parallel), ms(loser.time.exposed_tp),
                       ms(loser.time.exposed_tp /
                          static_cast<double>(config.model.layers * config.accumulation())));
  }
  if (most == dp) {
    return fmt::format("dp {} exposes {} of gradient{} collectives", config.parallel.dp,
                       ms(loser.time.exposed_dp), config.parallel.zero > 0 ? " and weight" : "");
  }
  return fmt::format("computes {} longer: {} micro-batch{} of {:.0f} rows, ffn / tp = {}",
                     ms(compute), config.accumulation(), config.accumulation() == 1 ? "" : "es",
                     loser.rows, config.model.ffn / config.parallel.tp);
}

}  // namespace

double Prediction::memory_bytes() const {
  return std::accumulate(memory.begin(), memory.end(),
                         reserved + static_cast<double>(beside.total()));
}

Prediction predict(const Config& config, const Hardware& hardware, const RowCounts& counts) {
  const Layout layout = {config.parallel.tp, config.parallel.dp, 0};
  const Precision precision = precision_of(config);
  Prediction result{.config = config, .rows = counts.rows};
  Arena arena;
  const TrainState state(config, layout, precision, max_rows(config), arena);
  for (std::size_t c = 0; c < kMemoryCategories; ++c) {
    result.memory[c] = static_cast<double>(arena.bytes(static_cast<MemoryCategory>(c)));
  }
  if (!hardware.gpu) {
    const CommChoice comm = config.parallel.comm;
    const int threads =
        config.threads > 0 ? config.threads : hardware.costs_of(config.world()).threads;
    result.beside = host_memory(
        config, state.store, precision,
        {.threads = config.device == DeviceChoice::kReference ? 0 : threads,
         .processes = comm == CommChoice::kMpi || (comm == CommChoice::kAuto && hardware.processes),
         .row_counts = counts.different});
  }
  result.reserved = hardware.reserved;
  const double there =
      hardware.gpu ? hardware.memory : hardware.memory / hardware.ranks_on_host(config.world());
  result.fits = result.memory_bytes() <= there;
  if (!result.fits) {
    result.why = fmt::format("does not fit: {} of {}",
                             bytes_text(static_cast<std::size_t>(result.memory_bytes())),
                             bytes_text(static_cast<std::size_t>(there)));
  }
  result.tokens = counts.tokens;
  result.flops = 6.0 * static_cast<double>(state.network.matmul_parameters()) * result.tokens;
  const StepRows rows = {
      config.accumulation(),
      static_cast<std::int64_t>(result.rows * static_cast<double>(config.accumulation()) + 0.5)};
  result.traffic = step_traffic(config, layout, precision, state.store, rows);
  const double local = static_cast<double>(arena.bytes(MemoryCategory::kMainGrads)) /
                       static_cast<double>(size_of(precision.main));
  const auto bytes = [&](MemoryCategory category) {
    return static_cast<double>(arena.bytes(category));
  };
  const double full = result.rows / static_cast<double>(max_rows(config));
  result.time = step_time(
      config, layout, precision, hardware,
      {.rows = result.rows,
       .owned_parameters = config.parallel.zero > 0 ? local / config.parallel.dp : local,
       .working_set = bytes(MemoryCategory::kWeights) + bytes(MemoryCategory::kMainGrads) +
                      full * bytes(MemoryCategory::kActivations),
       .traffic = result.traffic});
  return result;
}

std::vector<Prediction> plan(const Config& config, int world, const Hardware& hardware,
                             const SampledRows& sampled) {
  std::vector<Prediction> predictions;
  for (const Config& layout : legal_layouts(config, world)) {
    predictions.push_back(predict(layout, hardware, sampled.counts(layout)));
  }
  std::stable_sort(
      predictions.begin(), predictions.end(), [](const Prediction& a, const Prediction& b) {
        if (a.fits != b.fits) {
          return a.fits;
        }
        return a.fits ? a.time.total() < b.time.total() : a.memory_bytes() < b.memory_bytes();
      });
  for (std::size_t i = 1; i < predictions.size() && predictions.front().fits; ++i) {
    if (predictions[i].fits) {
      predictions[i].why = reason(predictions[i], predictions.front());
    }
  }
  return predictions;
}

}  // namespace tandem
