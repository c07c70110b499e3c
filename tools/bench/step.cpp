#include "tools/bench/step.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <vector>

#include "core/statistics.h"
#include "train/agree.h"
#include "train/roof.h"
#include "train/state.h"
#include "train/trainer.h"

namespace tandem {

namespace {

/// The matmuls of one block as this rank runs them: y = x W^T, dx = dy W, dW = dy^T x, for both
/// linear layers.
std::vector<MatmulShape> block_shapes(const Config& config, std::int64_t rows) {
  const std::int64_t parts = config.model.activation == Activation::kSwiglu ? 2 : 1;
  const std::int64_t hidden = config.model.hidden;
  const std::int64_t ffn = config.model.ffn / config.parallel.tp;
  std::vector<MatmulShape> shapes;
  const auto linear = [&](std::int64_t in, std::int64_t out) {
    shapes.push_back({rows, out, in, false, true});
    shapes.push_back({rows, in, out, false, false});
    shapes.push_back({out, in, rows, true, false});
  };
  linear(hidden, parts * ffn);
  linear(ffn, hidden);
  return shapes;
}

/// FLOP/s of all ranks, which start each matmul together: the slowest of them counts, so that ranks
/// that share CPUs do not each add what they reach while another waits.
double matmul_rate_together(RankContext& rank, Stream& stream, DType storage,
                            const MatmulShape& shape) {
  constexpr int kRepeats = 5;  // after one that is not counted
  const MatmulTimer timer(*rank.device, stream, storage, shape);
  double best = 0.0;
  for (int i = 0; i <= kRepeats; ++i) {
    rank.control->barrier({.label = "bench"}).wait_host();
    double slowest = timer.seconds();
    rank.control
        ->all_reduce(Tensor(&slowest, DType::kF64, {1}), {.op = ReduceOp::kMax, .label = "roof"})
        .wait_host();
    best = i == 0 ? 0.0 : std::max(best, rank.layout.world() * timer.flops() / slowest);
  }
  return best;
}

double measure_roof(RankContext& rank, const Config& config, std::int64_t rows) {
  const auto stream = rank.device->make_stream("roof");
  double best = 0.0;
  for (const MatmulShape& shape : block_shapes(config, rows)) {
    best = std::max(best, matmul_rate_together(rank, *stream, rank.precision.storage, shape));
    if (rank.precision.storage != DType::kF32 && rank.device->host_memory()) {
      // Where the processor has no units for the type, matmuls of floats are the roof.
      best = std::max(best, matmul_rate_together(rank, *stream, DType::kF32, shape));
    }
  }
  return best;
}

/// Nanoseconds to enter a collective in a ledger that has the lines of `like`: its label, count and
/// bytes, and, as every call and every wait does, the time that it took.
double ledger_ns(const Ledger& like) {
  if (like.lines().empty()) {
    return 0.0;
  }
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kRecords = 1 << 16;
  Ledger ledger;
  const auto start = Clock::now();
  for (std::size_t i = 0; i < kRecords; ++i) {
    const TrafficKey& key = like.lines()[i % like.lines().size()].traffic.key;
    const Ledger::LineNumber line = ledger.add({.group = Label(key.group.view()),
                                                .sequence = i,
                                                .op = key.op,
                                                .dtype = key.dtype,
                                                .count = 1,
                                                .label = Label(key.label.view())},
                                               key.ranks);
    for (int held = 0; held < 2; ++held) {
      const auto from = Clock::now();
      const double seconds = std::chrono::duration<double>(Clock::now() - from).count();
      ledger.add_time(line, seconds, seconds);
    }
  }
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kRecords;
}

/// Parts of the 6 FLOPs of a matmul parameter and token.
double share_of_flops(std::string_view phase) {
  return phase == "forward" ? 1.0 / 3.0 : phase == "backward" ? 2.0 / 3.0 : 0.0;
}

/// Mean times since `before`, in `steps` steps, of phases that have none inside them.
std::vector<StepPhase> phases_since(const std::vector<Profiler::Phase>& before,
                                    const std::vector<Profiler::Phase>& phases,
                                    std::int64_t steps) {
  std::vector<StepPhase> result;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const bool has_parts = std::any_of(phases.begin(), phases.end(),
                                       [i](const auto& other) { return other.parent == i; });
    if (!has_parts && phases[i].parent != Profiler::Phase::kNone) {
      const double seconds = phases[i].seconds - (i < before.size() ? before[i].seconds : 0.0);
      result.push_back({.name = phases[i].name, .ms = seconds * 1e3 / static_cast<double>(steps)});
    }
  }
  return result;
}

}  // namespace

StepBenchmark benchmark_step(Session& session, const Config& config, DataSource& source) {
  RankContext& rank = session.rank();
  rank.precision = precision_of(config, rank.device->kind());
  const std::int64_t rows = max_rows(config);
  Arena measured;
  const TrainState sizes(config, rank.layout, rank.precision, rows, measured);
  const std::size_t data =
      source.buffer_bytes() + Trainer::pinned_bytes(*rank.device, config, rank.precision.storage);
  agree(*rank.control, [&] { session.check_memory(config, measured, {.data = data}); });
  Arena arena(*rank.device, measured);
  TrainState state(config, rank.layout, rank.precision, rows, arena);
  Trainer trainer(rank, config, state, source);

  StepBenchmark result{.world = rank.layout.world(),
                       .matmul_parameters = state.network.matmul_parameters()};
  trainer.step();  // builds primitives and touches memory
  rank.control->barrier({.label = "bench"}).wait_host();
  double roof = measure_roof(rank, config, rows);
  const std::vector<Profiler::Phase> before = rank.profiler->phases();
  const std::uint64_t calls_before = rank.ledger->calls();
  std::vector<double> step_seconds, data_seconds;
  for (std::int64_t i = 1; i < config.train.steps; ++i) {
    const StepResult step = trainer.step();
    step_seconds.push_back(step.seconds - step.data_seconds);
    data_seconds.push_back(step.data_seconds);
    result.tokens = step.tokens;
  }
  result.collectives = static_cast<double>(rank.ledger->calls() - calls_before) /
                       static_cast<double>(config.train.steps - 1);
  result.ledger_ns = ledger_ns(*rank.ledger);
  rank.control->barrier({.label = "bench"}).wait_host();
  roof = std::max(roof, measure_roof(rank, config, rows));

  const double seconds = median(step_seconds);
  result.step_ms = seconds * 1e3;
  result.data_ms = median(data_seconds) * 1e3;
  result.gflops = 6.0 * static_cast<double>(result.matmul_parameters) *
                  static_cast<double>(result.tokens) / seconds / 1e9;
  result.roof_gflops = roof / 1e9;
  result.phases = phases_since(before, rank.profiler->phases(), config.train.steps - 1);
  for (StepPhase& phase : result.phases) {
    const double flops = share_of_flops(phase.name) * result.gflops * result.step_ms * 1e6;
    if (flops > 0.0 && rank.device->host_memory()) {
      phase.roof_fraction = flops / (phase.ms * 1e-3) / roof;
    }
  }
  return result;
}

}  // namespace tandem
