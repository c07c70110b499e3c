#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tools/bench/collectives.h"
#include "tools/bench/gemm.h"
#include "tools/bench/hardware.h"
#include "tools/bench/step.h"
#include "train/agree.h"
#include "train/data/source.h"
#include "train/launch.h"
#include "train/plan/hardware.h"
#include "train/state.h"

namespace tandem {
namespace {

/// Writes `json` to `file`, if one was asked for.
void save(const nlohmann::ordered_json& json, const std::string& file) {
  if (file.empty()) {
    return;
  }
  std::ofstream out(file);
  out << json.dump(2) << '\n';
  if (!out.flush()) {
    throw ConfigError("--json " + file + ": cannot be written");
  }
}

class GemmJob : public Job {
 public:
  GemmJob(const CommandLine& line, const Config& config) : json_(line.json), config_(config) {}

  int run(Session& session) override {
    RankContext& rank = session.rank();
    rank.precision = precision_of(config_, rank.device->kind());
    agree(*rank.control, [&] {
      if (rank.layout.rank == 0) {
        show(rank, benchmark_roofs(rank, rank.precision.storage));
      }
    });
    return 0;
  }

 private:
  void show(const RankContext& rank, const RoofBenchmark& result) const {
    const std::string precision(name_of(rank.precision.storage));
    fmt::print("bench gemm: rank 0 alone, {}, {} thread{}\n", precision, rank.threads,
               rank.threads == 1 ? "" : "s");
    fmt::print("  device     {}\n", rank.device->describe());
    fmt::print("  matmul     {:.1f} GFLOP/s, [{}, {}] by its like on random data\n", result.gflops,
               result.n, result.n);
    fmt::print("  copy       {:.1f} GB/s read and written\n", result.copy_gb_per_s);
    std::fflush(stdout);
    save({{"precision", precision},
          {"threads", rank.threads},
          {"device", rank.device->describe()},
          {"n", result.n},
          {"gflops", result.gflops},
          {"copy_gb_per_s", result.copy_gb_per_s}},
         json_);
  }

  std::string json_;
  Config config_;
};

class CollectivesJob : public Job {
 public:
  CollectivesJob(const CommandLine& line, const Config& config)
      : json_(line.json), config_(config) {
    if (config.world() == 1) {
      throw ConfigError(
          "bench collectives: a layout of one rank has none. Write --set parallel.tp=2, say.");
    }
  }

  int run(Session& session) override {
    const std::vector<CollectiveTime> times = benchmark_collectives(session, config_);
    agree(*session.rank().control, [&] {
      if (session.rank().layout.rank == 0) {
        show(session, times);
      }
    });
    return 0;
  }

 private:
  void show(Session& session, const std::vector<CollectiveTime>& times) const {
    const RankContext& rank = session.rank();
    const std::string communicator = session.placement().comm == CommChoice::kNccl
                                         ? "nccl"
                                         : std::string(session.world().kind());
    const std::string dtype(name_of(precision_of(config_, rank.device->kind()).storage));
    fmt::print("bench collectives: {}, tp {} x dp {}, {}\n", communicator, rank.layout.tp,
               rank.layout.dp, rank.device->describe());
    nlohmann::ordered_json results = nlohmann::ordered_json::array();
    std::string heading;
    for (const CollectiveTime& time : times) {
      const std::string op(name_of(time.op));
      const double us = time.seconds * 1e6, algorithm = time.algorithm_bandwidth() / 1e9,
                   bus = time.bus_bandwidth() / 1e9;
      if (heading != time.group + op) {
        heading = time.group + op;
        fmt::print("\n{} in {}, groups of {}\n", op, time.group, time.ranks);
        fmt::print("{:>12} {:>12} {:>6} {:>12} {:>8} {:>8}\n", "size", "count", "type", "time",
                   "algbw", "busbw");
        fmt::print("{:>12} {:>12} {:>6} {:>12} {:>8} {:>8}\n", "(B)", "(elements)", "", "(us)",
                   "(GB/s)", "(GB/s)");
      }
      fmt::print("{:>12} {:>12} {:>6} {:>12.1f} {:>8.3f} {:>8.3f}\n", time.bytes, time.count, dtype,
                 us, algorithm, bus);
      results.push_back({{"group", time.group},
                         {"ranks", time.ranks},
                         {"op", op},
                         {"bytes", time.bytes},
                         {"count", time.count},
                         {"time_us", us},
                         {"algbw_gb_per_s", algorithm},
                         {"busbw_gb_per_s", bus}});
    }
    std::fflush(stdout);
    save({{"communicator", communicator},
          {"precision", dtype},
          {"tp", rank.layout.tp},
          {"dp", rank.layout.dp},
          {"threads", rank.threads},
          {"device", rank.device->describe()},
          {"collectives", results}},
         json_);
  }

  std::string json_;
  Config config_;
};

class BenchJob : public Job {
 public:
  BenchJob(const CommandLine& line, const Config& config, const Layout& layout)
      : json_(line.json), config_(config) {
    config_.train.steps = std::max<std::int64_t>(config_.train.steps, 2);
    config_.train.eval_every = 0;
    source_ = make_data_source(config_, layout,
                               {.storage = precision_of(config_).storage,
                                .threads = config_.threads > 0 ? config_.threads : 1});
  }

  int run(Session& session) override {
    const StepBenchmark result = benchmark_step(session, config_, *source_);
    agree(*session.rank().control, [&] {
      if (session.rank().layout.rank == 0) {
        show(session, result);
      }
    });
    return 0;
  }

 private:
  void show(Session& session, const StepBenchmark& result) const {
    const RankContext& rank = session.rank();
    const std::string precision(name_of(rank.precision.storage));
    fmt::print("bench step: {}\n", config_.name);
    fmt::print("  layout     tp {} x dp {}, {} thread{} per rank, {}\n", rank.layout.tp,
               rank.layout.dp, rank.threads, rank.threads == 1 ? "" : "s", precision);
    fmt::print("  device     {}\n", rank.device->describe());
    fmt::print("  step       {:.1f} ms (median of {}), {} tokens; data {:.1f} ms apart\n",
               result.step_ms, config_.train.steps - 1, result.tokens, result.data_ms);
    fmt::print("  rate       {:.1f} GFLOP/s\n", result.gflops);
    fmt::print("  roof       {:.1f} GFLOP/s, the fastest matmul of the step's shapes{}\n",
               result.roof_gflops, result.world == 1 ? "" : ", all ranks at once");
    fmt::print("  fraction   {:.3f}\n", result.gflops / result.roof_gflops);
    if (result.world > 1) {
      fmt::print(
          "  ledger     {:.0f} collectives of rank 0 at {:.0f} ns each: {:.4f} % of the step\n",
          result.collectives, result.ledger_ns, 100.0 * result.ledger_fraction());
    }
    fmt::print("  phases     of rank 0{}, mean of a step\n",
               rank.device->host_memory() ? "" : "'s host, which queues them");
    for (const StepPhase& phase : result.phases) {
      fmt::print(
          "    {:<24} {:>10.2f} ms{}\n", phase.name, phase.ms,
          phase.roof_fraction ? fmt::format("  {:.3f} of the roof", *phase.roof_fraction) : "");
    }
    std::fflush(stdout);
    nlohmann::ordered_json json = {
        {"precision", precision},
        {"tp", rank.layout.tp},
        {"dp", rank.layout.dp},
        {"threads", rank.threads},
        {"tokens", result.tokens},
        {"matmul_parameters", result.matmul_parameters},
        {"step_ms", result.step_ms},
        {"data_ms", result.data_ms},
        {"gflops", result.gflops},
        {"roof_gflops", result.roof_gflops},
        {"roof_fraction", result.gflops / result.roof_gflops},
        {"collectives", result.collectives},
        {"ledger_ns", result.ledger_ns},
        {"ledger_fraction", result.ledger_fraction()},
    };
    for (const StepPhase& phase : result.phases) {
      std::string key = phase.name;
      std::replace_if(
          key.begin(), key.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
      json[key + "_ms"] = phase.ms;
    }
    save(json, json_);
  }

  std::string json_;
  Config config_;
  std::unique_ptr<DataSource> source_;
};

/// For `bench hardware`, which needs ranks and no model: one for each CPU, or those of the
/// launcher.
std::string default_config() {
  const std::string dp =
      launched_ranks() > 0 ? "" : fmt::format("parallel: {{dp: {}}}\n", allowed_cpus());
  return dp + fmt::format("name: hardware\ndevice: cpu\ntrain: {{global_batch: {}}}\n",
                          32 * std::max(launched_ranks(), allowed_cpus()));
}

class HardwareJob : public Job {
 public:
  HardwareJob(const CommandLine& line, const Config& config)
      : file_(line.output.empty() ? measured_hardware_file() : std::filesystem::path(line.output)),
        config_(config) {
    if (file_.empty()) {
      throw ConfigError("bench hardware: neither XDG_CACHE_HOME nor HOME is set: write -o FILE");
    }
  }

  int run(Session& session) override {
    const MeasuredHardware measured = measure_hardware(session, config_);
    agree(*session.rank().control, [&] {
      if (session.rank().layout.rank == 0) {
        write(measured);
        const auto cpus = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
        if (measured.other_cpus.value_or(0.0) > kIdle * cpus) {
          session.rank().log->warn(fmt::format(
              "other processes kept {:.1f} of this machine's {} CPUs busy meanwhile, so these "
              "numbers are too slow: measure again when they have ended",
              *measured.other_cpus, cpus));
        }
      }
    });
    return 0;
  }

 private:
  static constexpr double kIdle = 0.05;  ///< share of the CPUs that others may have

  void write(const MeasuredHardware& measured) const {
    std::error_code ignored;  // a folder that cannot be made cannot be written into
    if (file_.has_parent_path()) {
      std::filesystem::create_directories(file_.parent_path(), ignored);
    }
    std::ofstream out(file_);
    out << to_yaml(measured);
    if (!out.flush()) {
      throw ConfigError("-o " + file_.string() + ": cannot be written");
    }
    fmt::print("bench hardware: {}\n", measured.name);
    for (const std::string& source : measured.sources) {
      fmt::print("  {}\n", source);
    }
    for (const MeasuredRanks& ranks : measured.ranks) {
      for (const MeasuredType& type : ranks.types) {
        double best = 0.0;
        for (const std::vector<double>& rates : type.gflops) {
          best = std::max(best, *std::max_element(rates.begin(), rates.end()));
        }
        fmt::print("  {} rank{} x {} thread{}  {}  {:.0f} GFLOP/s a rank at best\n", ranks.ranks,
                   ranks.ranks == 1 ? "" : "s", ranks.threads, ranks.threads == 1 ? "" : "s",
                   name_of(type.storage), best);
      }
      for (const auto& [op, link] : ranks.collectives.links) {
        fmt::print("  {} ranks  {}  {:.0f} us + {:.2f} GB/s\n", ranks.ranks, name_of(op),
                   link.latency * 1e6, link.bytes_per_s / 1e9);
      }
      if (ranks.ranks > 1) {
        fmt::print("  {} ranks  wait for the slowest: {:.1f} % of what they compute in between\n",
                   ranks.ranks, 100.0 * ranks.collectives.waits);
      }
    }
    fmt::print("wrote {}\n", file_.string());
    std::fflush(stdout);
  }

  std::filesystem::path file_;
  Config config_;
};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  using namespace tandem;
  return launch(
      {.description =
           {.name = "bench",
            .purpose = "Measures this machine: `step` times a training step and holds it "
                       "against the matmul roof of the same process; `gemm` measures the roofs "
                       "alone; `collectives` the groups of the layout, by size. These need a "
                       "--config; `hardware` does not: it measures all that `plan` needs to know "
                       "of this machine.",
            .examples = {"build/bench hardware                (once, on an idle machine)",
                         "mpirun -np 4 build/bench collectives --config ffn_tp2_dp2"},
            .has_json = true,
            .modes = {"step", "gemm", "collectives", "hardware"},
            .default_config = default_config(),
            .has_output = true},
       .prepare = [](const CommandLine& line, const Config& config,
                     const Layout& layout) -> std::unique_ptr<Job> {
         if (line.mode == "hardware") {
           return std::make_unique<HardwareJob>(line, config);
         }
         if (line.config.empty()) {
           throw ConfigError("bench " + line.mode + ": --config is required: name a YAML file");
         }
         if (line.mode == "collectives") {
           return std::make_unique<CollectivesJob>(line, config);
         }
         if (line.mode == "gemm") {
           return std::make_unique<GemmJob>(line, config);
         }
         return std::make_unique<BenchJob>(line, config, layout);
       }},
      argc, argv);
}
