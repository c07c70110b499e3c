#include "tools/bench/hardware.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iterator>
#include <memory>

#include "tools/bench/fit.h"
#include "tools/bench/idle.h"
#include "tools/bench/sample_configs.h"
#include "tools/bench/sample_steps.h"
#include "train/agree.h"
#include "train/state.h"

namespace tandem {

namespace {

/// Nobody waits for a rank in vain here: some wait while others measure.
constexpr double kPatience = 3600.0;

Precision precision_with(DType storage) { return {storage, DType::kF32, DType::kF32}; }

/// Bytes of a rank that keeps these models. Matrices of the lattice, at most a quarter of a GiB,
/// are not counted.
double arena_bytes(DType storage, const std::vector<Config>& configs) {
  double bytes = 0.0;
  for (const Config& config : configs) {
    Arena arena;
    const TrainState state(config, {config.parallel.tp, config.parallel.dp, 0},
                           precision_with(storage), max_rows(config), arena);
    bytes += static_cast<double>(arena.total());
  }
  return bytes;
}

/// Throws ConfigError where the models of `ranks` ranks, and of one on all CPUs if `one`, are more
/// than the host has room for.
void check_memory(const std::vector<DType>& types, int ranks, bool one) {
  double bytes = ranks > 1 ? ranks * arena_bytes(DType::kF32, split_configs(ranks)) : 0.0;
  for (const DType storage : types) {
    bytes += (ranks + (one ? 1 : 0)) * arena_bytes(storage, model_configs(storage));
  }
  const auto free = static_cast<double>(available_memory());
  if (bytes > free) {
    constexpr double kGiB = 1 << 30;
    throw ConfigError(fmt::format(
        "bench hardware keeps models of {:.1f} GiB on {} ranks, and {:.1f} GiB are free: start "
        "fewer ranks (--set parallel.dp=N, or mpirun -np N)",
        bytes / kGiB, ranks, free / kGiB));
  }
}

/// Everything is measured so often, and apart: a machine that others use too is slow for seconds.
constexpr int kPasses = 4;
/// Large matmuls take half of a pass, so they are only in every second one, and not in the first,
/// in which threads and memory are new.
constexpr int kPassesOfLarge = kPasses / 2;

/// Ranks [0, `ranks`) of the session, on a device of `threads` threads, with groups of their own;
/// the other ranks make groups too, since that is collective, and wait.
class Crowd {
 public:
  Crowd(Session& session, Communicator& everyone, int ranks, int threads,
        const std::vector<DType>& types)
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
    if (is_member()) {
      make_samplers(types);
    }
  }

  void pass(bool with_large_matmuls) {
    if (is_member()) {
      for (const auto& type : types_) {
        line_up();
        type->lattice.round(with_large_matmuls);
        sample(type->models, [&](const StepSamples& steps) {
          type->ranges.insert(type->ranges.end(), steps.ranges.begin(), steps.ranges.end());
          type->rests.push_back(steps.rest);
        });
      }
      sample(splits_, [&](const StepSamples& steps) {
        collectives_.insert(collectives_.end(), steps.collectives.begin(), steps.collectives.end());
      });
    }
    everyone_.barrier({.label = "bench hardware"}).wait_host();
  }

  /// What the passes have found.
  MeasuredRanks result() {
    MeasuredRanks result{.ranks = ranks_, .threads = context_.threads};
    if (is_member()) {
      for (const auto& type : types_) {
        result.types.push_back(fit(*type));
      }
      if (ranks_ > 1) {
        result.collectives = fit_collectives(collectives_);
      }
    }
    return result;
  }

 private:
  using Samplers = std::vector<std::unique_ptr<StepSampler>>;
  struct Type {
    Type(Device& device, const Precision& its_precision, double largest)
        : precision(its_precision), lattice(device, its_precision, largest) {}

    Precision precision;
    Lattice lattice;
    Samplers models;
    std::vector<RangeSample> ranges;
    std::vector<double> rests;
  };

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

  /// Of the config's own layout: of one rank, each for itself.
  std::unique_ptr<StepSampler> sampler(const Precision& precision, const Config& config) {
    const auto& parallel = config.parallel;
    const bool alone = config.world() == 1;
    RankContext rank = context_;
    rank.precision = precision;
    rank.layout = {parallel.tp, parallel.dp, alone ? 0 : session_.world().rank()};
    rank.tensor_parallel = parallel.tp > 1 ? together_.get() : alone_.get();
    rank.data_parallel = parallel.dp > 1 ? together_.get() : alone_.get();
    rank.control = alone ? alone_.get() : together_.get();
    return std::make_unique<StepSampler>(rank, config);
  }
  void make_samplers(const std::vector<DType>& types) {
    for (const DType storage : types) {
      const Precision precision = precision_with(storage);
      line_up();
      std::vector<double> rate = {Lattice::middle_rate(*device_, precision)};
      average(rate);
      Type& type = *types_.emplace_back(
          std::make_unique<Type>(*device_, precision, largest_matmul(rate.front())));
      for (const Config& config : model_configs(storage)) {
        type.models.push_back(sampler(precision, config));
      }
    }
    if (ranks_ > 1) {
      for (const Config& config : split_configs(ranks_)) {
        splits_.push_back(sampler(precision_with(DType::kF32), config));
      }
    }
  }

  /// A step of each, side by side. The step before was another model's, so the first
  /// micro-batch finds nothing of its own in the caches.
  template <typename Use>
  void sample(const Samplers& samplers, const Use& use) {
    for (const auto& sampler : samplers) {
      line_up();
      StepSamples steps = sampler->step();
      average(steps);
      use(steps);
    }
  }

  /// All ranks have measured the same work: of each time the mean over them, since cores are not
  /// equally fast.
  void average(StepSamples& steps) {
    std::vector<double*> times = {&steps.rest};
    for (RangeSample& range : steps.ranges) {
      times.insert(times.end(), {&range.cold, &range.warm});
    }
    for (CollectiveSample& collective : steps.collectives) {
      times.insert(times.end(), {&collective.seconds, &collective.since});
    }
    std::vector<double> means;
    std::transform(times.begin(), times.end(), std::back_inserter(means),
                   [](const double* time) { return *time; });
    average(means);
    for (std::size_t i = 0; i < times.size(); ++i) {
      *times[i] = means[i];
    }
  }
  void average(std::vector<double>& values) {
    together_
        ->all_reduce(Tensor::of<double>(values, {std::ssize(values)}), {.label = "bench hardware"})
        .wait_host();
    for (double& value : values) {
      value /= ranks_;
    }
  }

  /// Rates to times and back; 0 is a shape that was not measured.
  static void invert(std::vector<double>& values) {
    for (double& value : values) {
      value = value > 0.0 ? 1.0 / value : 0.0;
    }
  }

  MeasuredType fit(Type& type) {
    MeasuredType result{.storage = type.precision.storage, .gflops = type.lattice.rates()};
    for (std::vector<double>& rates : result.gflops) {
      invert(rates);
      average(rates);
      invert(rates);
    }
    const MatmulRates matmuls({kLatticeRows.begin(), kLatticeRows.end()},
                              {kLatticeWidths.begin(), kLatticeWidths.end()}, result.gflops);
    result.ranges = fit_ranges(type.ranges, &RangeSample::warm, matmuls);
    result.cold_ranges = fit_ranges(type.ranges, &RangeSample::cold, matmuls);
    std::sort(type.rests.begin(), type.rests.end());
    result.step_fixed = type.rests[type.rests.size() / 2];
    return result;
  }

  Session& session_;
  Communicator& everyone_;
  int ranks_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> compute_;
  Profiler profiler_;
  std::unique_ptr<Communicator> alone_, together_;
  RankContext context_;
  std::vector<std::unique_ptr<Type>> types_;
  Samplers splits_;
  std::vector<CollectiveSample> collectives_;
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
  const OtherProcesses others;
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
  // Processes that wait would not let one have all CPUs.
  const bool one_on_all = threads && world > 1;
  agree(*rank.control, [&] { check_memory(types, world, one_on_all); });
  MeasuredHardware result{
      .cpus = cpus, .memory = static_cast<double>(available_memory()), .processes = !threads};
  std::vector<std::unique_ptr<Crowd>> crowds;
  if (one_on_all) {
    crowds.push_back(std::make_unique<Crowd>(session, *everyone, 1, cpus, types));
  }
  crowds.push_back(std::make_unique<Crowd>(session, *everyone, world, rank.threads, types));
  for (int pass = 0; pass < kPasses; ++pass) {
    for (const auto& crowd : crowds) {
      crowd->pass(pass % 2 == 1);
    }
  }
  for (const auto& crowd : crowds) {
    result.ranks.push_back(crowd->result());
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  result.name = fmt::format("{} CPU{}, ranks as {}", cpus, cpus == 1 ? "" : "s",
                            threads ? "threads" : "processes (MPI)");
  result.other_cpus = others.cpus(*everyone, !threads);
  result.sources = {
      fmt::format("measured on {:%Y-%m-%d} by `bench hardware` in {:.0f} s{}",
                  fmt::gmtime(std::time(nullptr)), seconds.count(),
                  result.other_cpus ? fmt::format(", while other processes kept {:.2f} CPUs busy",
                                                  *result.other_cpus)
                                    : ""),
      rank.device->describe(),
      fmt::format(
          "matmuls: the median of {} calls of every shape, of {} where it is large; ranges "
          "and collectives: fitted to {} steps of each of some small models; means over ranks",
          kPasses, kPassesOfLarge, kPasses)};
  return result;
}

}  // namespace tandem
