#include "tools/bench/hardware.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "tools/bench/fit.h"
#include "tools/bench/sample_steps.h"
#include "train/agree.h"
#include "train/state.h"

namespace tandem {

namespace {

/// Nobody waits for a rank in vain here: some wait while others measure.
constexpr double kPatience = 3600.0;

using Settings = std::vector<std::string>;

/// Models that together have every range, at sizes that fill caches differently.
const std::vector<Settings>& models() {
  static const std::vector<Settings> all = {
      {"model.kind=ffn", "model.hidden=512", "model.ffn=1024", "data.seq_len=256"},
      {"model.kind=ffn", "model.hidden=128", "model.ffn=1024", "data.seq_len=1024"},
      {"model.kind=ffn", "model.hidden=512", "model.ffn=128", "data.seq_len=1536",
       "model.dropout=0.1"},
      {"model.kind=ffn", "model.hidden=768", "model.ffn=1536", "data.seq_len=64"},
      {"model.vocab_size=256", "model.context=16", "model.hidden=256", "model.ffn=1024",
       "data.seq_len=256", "data.documents=packed"},
      {"model.vocab_size=1024", "model.context=8", "model.hidden=512", "model.ffn=1024",
       "data.seq_len=128", "data.documents=packed", "model.dropout=0.1"},
      {"model.vocab_size=256", "model.context=4", "model.hidden=128", "model.ffn=512",
       "data.seq_len=512", "data.documents=packed"},
      {"model.vocab_size=2048", "model.context=4", "model.hidden=384", "model.ffn=768",
       "data.seq_len=256", "data.documents=packed"}};
  return all;
}

/// Splits that together have every collective of a step, for a world of `ranks`.
std::vector<Settings> splits(int ranks) {
  const std::string all = std::to_string(ranks);
  return {{"parallel.tp=" + all},
          {"parallel.tp=" + all, "parallel.sequence_parallel=true"},
          {"parallel.dp=" + all},
          {"parallel.dp=" + all, "parallel.zero=1"}};
}

std::string_view key_of(DType storage) {
  return storage == DType::kF32 ? "fp32" : storage == DType::kBF16 ? "bf16" : "fp16";
}

/// Of its three steps two are measured: the first builds primitives.
Config sample_config(DType storage, int ranks, const std::vector<Settings>& settings) {
  constexpr const char* kBase = R"(model: {layers: 2}
data: {format: synthetic}
train: {steps: 3, micro_batch: 1, eval_every: 0}
optim: {lr: 1.0e-4, schedule: {kind: constant, warmup_steps: 0, decay_steps: 0}}
)";
  Settings overrides = {fmt::format("precision={}", key_of(storage)),
                        fmt::format("train.global_batch={}", 2 * ranks)};
  for (const Settings& some : settings) {
    overrides.insert(overrides.end(), some.begin(), some.end());
  }
  return parse_config(kBase, {.file = "bench hardware", .overrides = overrides});
}

/// Everything is measured twice and apart: a machine that others use too is slow for seconds.
constexpr int kPasses = 2;

/// Ranks [0, `ranks`) of the session, on a device of `threads` threads, with groups of their own;
/// the other ranks make groups too, since that is collective, and wait.
class Crowd {
 public:
  Crowd(Session& session, Communicator& everyone, int ranks, int threads)
      : session_(session),
        everyone_(everyone),
        ranks_(ranks),
        device_(make_cpu_device(threads)),
        compute_(device_->make_stream("compute")),
        profiler_(false) {
    context_ = session.rank();
    context_.threads = threads;
    context_.device = device_.get();
    context_.compute = compute_.get();
    context_.profiler = &profiler_;
    alone_ = group("alone", {session.world().rank()});
    together_ = group("together", first_ranks());
  }

  MeasuredRanks measure(const std::vector<DType>& types) {
    MeasuredRanks result{.ranks = ranks_, .threads = context_.threads};
    if (is_member()) {
      for (const DType storage : types) {
        result.types.push_back(measure(storage));
      }
      if (ranks_ > 1) {
        result.collectives = measure_collectives();
      }
    }
    everyone_.barrier({.label = "bench hardware"}).wait_host();
    return result;
  }

 private:
  bool is_member() const { return session_.world().rank() < ranks_; }
  /// Who is no member is alone in a group of the same name.
  std::vector<int> first_ranks() const {
    std::vector<int> members;
    for (int r = 0; r < ranks_; ++r) {
      members.push_back(r);
    }
    return is_member() ? members : std::vector{session_.world().rank()};
  }
  std::unique_ptr<Communicator> group(const char* name, const std::vector<int>& ranks) {
    return session_.world().make_group(name, ranks, *device_, nullptr, &profiler_);
  }
  void line_up() { together_->barrier({.label = "bench hardware"}).wait_host(); }

  /// Steps of each config in turn, under its own layout: of one rank, each for itself.
  std::vector<StepSamples> sample(const std::vector<Config>& configs) {
    std::vector<StepSamples> steps;
    for (int pass = 0; pass < kPasses; ++pass) {
      for (const Config& config : configs) {
        const auto& parallel = config.parallel;
        const bool alone = config.world() == 1;
        context_.layout = {parallel.tp, parallel.dp, alone ? 0 : session_.world().rank()};
        context_.tensor_parallel = parallel.tp > 1 ? together_.get() : alone_.get();
        context_.data_parallel = parallel.dp > 1 ? together_.get() : alone_.get();
        context_.control = alone ? alone_.get() : together_.get();
        line_up();
        steps.push_back(sample_steps(context_, config));
      }
    }
    return steps;
  }

  MeasuredType measure(DType storage) {
    MeasuredType result{.storage = storage};
    context_.precision = {storage, DType::kF32, DType::kF32};
    result.gflops = measure_lattice(*device_, context_.precision, [this] { line_up(); });
    const MatmulRates matmuls({kLatticeRows.begin(), kLatticeRows.end()},
                              {kLatticeWidths.begin(), kLatticeWidths.end()}, result.gflops);
    std::vector<Config> configs;
    for (const Settings& model : models()) {
      configs.push_back(sample_config(storage, 1, {model, {"parallel.dp=1"}}));
    }
    std::vector<RangeSample> samples;
    std::vector<double> rests;
    for (const StepSamples& steps : sample(configs)) {
      samples.insert(samples.end(), steps.ranges.begin(), steps.ranges.end());
      rests.push_back(steps.rest);
    }
    result.ranges = fit_ranges(samples, matmuls);
    std::sort(rests.begin(), rests.end());
    result.step_fixed = rests[rests.size() / 2];
    return result;
  }

  FittedCollectives measure_collectives() {
    std::vector<Config> configs;
    for (const Settings& model : {models()[0], models()[5]}) {
      for (const Settings& split : splits(ranks_)) {
        configs.push_back(sample_config(DType::kF32, ranks_, {model, split}));
      }
    }
    context_.precision = {DType::kF32, DType::kF32, DType::kF32};
    std::vector<CollectiveSample> samples;
    for (const StepSamples& steps : sample(configs)) {
      samples.insert(samples.end(), steps.collectives.begin(), steps.collectives.end());
    }
    return fit_collectives(samples);
  }

  Session& session_;
  Communicator& everyone_;
  int ranks_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> compute_;
  Profiler profiler_;
  std::unique_ptr<Communicator> alone_, together_;
  RankContext context_;
};

}  // namespace

MeasuredHardware measure_hardware(Session& session, const Config& config) {
  RankContext& rank = session.rank();
  const int world = rank.layout.world();
  agree(*rank.control, [&] {
    if (session.placement().device != DeviceKind::kCpu) {
      throw ConfigError(
          "bench hardware measures CPUs: write --set device=cpu, or describe GPUs in a file as "
          "configs/hardware/h100.yaml does");
    }
    if (session.hosts().ranks_here != world) {
      throw ConfigError("bench hardware measures one host: start its ranks on one");
    }
  });
  const auto start = std::chrono::steady_clock::now();
  session.world().set_timeout(kPatience);
  const std::unique_ptr<Device> host = make_reference_device(1);
  const auto everyone =
      session.world().make_group("bench", rank.layout.world_group(), *host, nullptr, nullptr);
  const int cpus = allowed_cpus();
  std::vector<DType> types = {DType::kF32, DType::kBF16};
  if (const DType own = precision_of(config).storage;
      std::find(types.begin(), types.end(), own) == types.end()) {
    types.push_back(own);
  }

  const bool threads = session.world().kind() == "local";
  MeasuredHardware result{
      .cpus = cpus, .memory = static_cast<double>(available_memory()), .processes = !threads};
  if (threads && world > 1) {  // processes that wait would not let one have all CPUs
    result.ranks.push_back(Crowd(session, *everyone, 1, cpus).measure(types));
  }
  result.ranks.push_back(Crowd(session, *everyone, world, rank.threads).measure(types));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  result.name = fmt::format("{} CPU{}, ranks as {}", cpus, cpus == 1 ? "" : "s",
                            threads ? "threads" : "processes (MPI)");
  result.sources = {fmt::format("measured on {:%Y-%m-%d} by `bench hardware` in {:.0f} s",
                                fmt::gmtime(std::time(nullptr)), seconds.count()),
                    rank.device->describe(),
                    "matmuls: the fastest of 2 or 3 calls of every shape; ranges and collectives: "
                    "fitted to steps of small models, each trained twice"};
  return result;
}

}  // namespace tandem
