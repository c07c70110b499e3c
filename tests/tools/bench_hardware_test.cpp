// What `bench hardware` makes of its measurements: rates of matmuls between those of a lattice,
// costs that are fitted to steps, and a file that the planner reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "tests/support/ranks.h"
#include "tests/train/process.h"
#include "tools/bench/fit.h"
#include "tools/bench/hardware.h"
#include "tools/bench/idle.h"
#include "tools/bench/sample_configs.h"
#include "tools/bench/sample_steps.h"
#include "train/plan/hardware.h"
#include "train/session.h"
#include "train/state.h"

namespace tandem::test {
namespace {

using ::testing::ElementsAre;

/// Two ranks of one host, as `bench hardware` measures them: every matmul at 50 GFLOP/s.
MeasuredHardware measured_machine() {
  const std::vector<double> rates(
      kLatticeRows.size() * kLatticeWidths.size() * kLatticeWidths.size(), 50.0);
  MeasuredRanks one{.ranks = 1, .threads = 2}, two{.ranks = 2, .threads = 1};
  one.types.push_back(
      {.storage = DType::kF32,
       .gflops = {rates, rates, rates},
       .ranges = {{"norm", {1e-6, 0.0, 2e-10, 1.0}}, {"fc2 gemm", {}}},
       .cold_ranges = {{"norm", {3e-6, 0.0, 4e-10, 1.0}}, {"fc2 gemm", {.matmul = 2.0}}},
       .step_fixed = 3e-6});
  two.types = one.types;
  two.collectives = {.links = {{Collective::kAllReduce, {4e-6, 5e9}}}, .waits = 0.03};
  return {.name = "two, made up",
          .sources = {"nobody: measured it"},
          .cpus = 2,
          .memory = 8.0 * (1 << 30),
          .ranks = {one, two}};
}

TEST(PlanHardware, IsReadBackAsBenchWroteIt) {
  const ScratchFolder folder;
  folder.write("here.yaml", to_yaml(measured_machine()));
  const std::string file = (folder.path() / "here.yaml").string();
  const Hardware hardware = load_hardware(file, DType::kF32);
  EXPECT_EQ(hardware.name, "two, made up");
  EXPECT_FALSE(hardware.processes);
  ASSERT_EQ(hardware.costs.size(), 2u);
  EXPECT_EQ(hardware.costs_of(1).threads, 2);
  EXPECT_EQ(hardware.costs_of(2).threads, 1);
  EXPECT_EQ(hardware.costs_of(8).ranks, 2) << "the most that were measured";
  EXPECT_EQ(hardware.crowding(2), 1.0);
  EXPECT_EQ(hardware.crowding(8), 4.0) << "all on one host, on two CPUs";
  const Costs& two = hardware.costs_of(2);
  EXPECT_NEAR(two.seconds({"norm", 0.0, 1e6}), 1e-6 + 2e-4, 1e-9);
  EXPECT_NEAR(two.seconds({"norm", 0.0, 1e6}, 0.5), 2e-6 + 3e-4, 1e-9);
  EXPECT_EQ(hardware.cold_share(20e6), 0.0) << "all in caches";
  EXPECT_EQ(hardware.cold_share(80e6), 0.75);
  const RangeWork product = {"fc2 gemm", 2e9, 0.0, MatmulSize{MatmulKind::kForward, 100, 1e4, 1e3}};
  EXPECT_NEAR(two.seconds(product), 2e9 / 50e9, 1e-6);
  EXPECT_NEAR(two.seconds(product, 0.25), 1.25 * 2e9 / 50e9, 1e-6);
  EXPECT_NEAR(hardware.seconds(two, Collective::kAllReduce, 1e6, 2, 1), 4e-6 + 2e-4, 1e-9);
  EXPECT_NEAR(two.step_fixed, 3e-6, 1e-12);
  EXPECT_NEAR(two.waits, 0.03, 1e-12);
  EXPECT_NEAR(hardware.peak_of(2), 50e9, 1.0);
  EXPECT_NEAR(hardware.peak_of(8), 12.5e9, 1.0);
  try {
    load_hardware(file, DType::kF16);
    ADD_FAILURE() << "a type that was not measured";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("fp16 was not measured"), std::string::npos)
        << error.what();
  }
}

TEST(BusySeconds, AreAllButIdleAndWaiting) {
  std::istringstream stat("cpu  1000 200 300 90000 7000 40 60 5 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
  EXPECT_DOUBLE_EQ(busy_seconds(stat, 100.0).value_or(-1.0), 16.05);
  std::istringstream other("intr 1 2 3 4 5 6 7 8");
  EXPECT_FALSE(busy_seconds(other, 100.0));
  std::istringstream hidden("cpu 0 0 0 0 0 0 0 0 0 0");
  EXPECT_FALSE(busy_seconds(hidden, 100.0)) << "some containers show nothing";
}

TEST(PlanMatmuls, AreInterpolatedAndStayAtTheEdge) {
  // Twice the rows, four times the rate; the largest was not measured.
  const std::vector<double> rates = {10, 10, 10, 10, 40, 40, 40, 0};
  const MatmulRates matmuls({64, 128}, {64, 128}, {rates, rates, rates});
  const auto gflops = [&](double rows, double out, double in) {
    const MatmulSize size = {MatmulKind::kForward, rows, out, in};
    return size.flops() / matmuls.seconds(size) / 1e9;
  };
  EXPECT_NEAR(gflops(64, 64, 128), 10.0, 1e-9);
  EXPECT_NEAR(gflops(64 * std::sqrt(2.0), 64, 64), 20.0, 1e-9) << "half-way in logarithms";
  EXPECT_NEAR(gflops(16, 64, 64), 10.0, 1e-9);
  EXPECT_NEAR(gflops(4096, 4096, 4096), 10.0, 1e-9) << "as with half the longest side";
  EXPECT_EQ(matmuls.seconds({MatmulKind::kForward, 0, 64, 64}), 0.0);
  EXPECT_NEAR(matmuls.best(), 40e9, 1.0);
}

TEST(PlanFit, FindsWhatTimesWereMadeOf) {
  std::vector<FitSample> samples;
  for (const double work : {1.0, 5.0, 100.0}) {
    for (const double bytes : {2.0, 30.0}) {
      samples.push_back({{1.0, work, bytes}, 0.5 + 2.0 * work});
    }
  }
  samples[3].seconds *= 5.0;  // somebody else was there
  const std::vector<double> found = fit_costs(samples);
  EXPECT_NEAR(found[0], 0.5, 1e-3);
  EXPECT_NEAR(found[1], 2.0, 1e-3);
  EXPECT_NEAR(found[2], 0.0, 1e-4) << "never less than nothing";
}

/// Rates of a lattice whose widths are 64, 96 and 128, of one row count: 30 GFLOP/s where both
/// widths are 96, else 10.
MatmulRates odd_rates() {
  const std::vector<double> rates = {10, 10, 10, 10, 30, 10, 10, 10, 10};
  return {{64}, {64, 96, 128}, {rates, rates, rates}};
}

TEST(PlanMatmulRates, KeepPowersOfTwoApart) {
  const MatmulRates matmuls = odd_rates();
  const auto gflops = [&](double width) {
    const MatmulSize size = {MatmulKind::kForward, 64, width, width};
    return size.flops() / matmuls.seconds(size) / 1e9;
  };
  EXPECT_NEAR(gflops(128), 10.0, 1e-9) << "rows that fall on the same cache sets";
  EXPECT_NEAR(gflops(120), 30.0, 1e-9) << "like 96, though nearer to 128";
  EXPECT_NEAR(gflops(64), 10.0, 1e-9);
  EXPECT_LT(gflops(80), 30.0) << "nothing odd was measured below 96";
}

TEST(PlanMatmulRates, HalveALongSideToAPowerOfTwoOnlyWhereItIsOne) {
  // Of widths 64, 96, 128, 192: 30 GFLOP/s where out is 96, else 10; no product with out 128 or
  // 192.
  std::vector<double> rates;
  for (const double rate : {10.0, 30.0, 0.0, 0.0}) {
    rates.insert(rates.end(), 4, rate);
  }
  const MatmulRates matmuls({32}, {64, 96, 128, 192}, {rates, rates, rates});
  const auto gflops = [&](double out) {
    const MatmulSize size = {MatmulKind::kForward, 32, out, 64};
    return size.flops() / matmuls.seconds(size) / 1e9;
  };
  EXPECT_NEAR(gflops(192), 30.0, 1e-9);
  EXPECT_NEAR(gflops(128), 10.0, 1e-9);
}

TEST(RankWork, LeavesTheActivationToMatmulsThatMakeIt) {
  for (const char* activation : {"gelu", "swiglu"}) {
    const Config config = parse_config(
        "model: {kind: ffn}\n",
        {.file = "test",
         .overrides = {"data.format=synthetic", std::string("model.activation=") + activation}});
    const Precision precision = {DType::kF32, DType::kF32, DType::kF32};
    for (const bool gpu : {false, true}) {
      const RankWork work(config, {1, 1, 0}, precision, 64.0, gpu);
      const bool fused = gpu && config.model.activation == Activation::kGelu;
      EXPECT_EQ(work.activation().bytes == 0.0, fused) << activation << gpu;
      EXPECT_EQ(work.activation_backward().bytes == 0.0, fused) << activation << gpu;
      EXPECT_EQ(work.fc1().beside_bytes > 0.0, fused) << "written beside the product";
    }
  }
}

TEST(RankWork, NamesTheKernelWhereARangeMayRunSeveral) {
  const auto names = [](std::vector<std::string> overrides) {
    overrides.emplace_back("data.format=synthetic");
    const Config config = parse_config("{}\n", {.file = "test", .overrides = overrides});
    const RankWork work(config, {1, 1, 0}, {DType::kF32, DType::kF32, DType::kF32}, 64.0, false);
    return std::array{work.activation().name(), work.activation_backward().name(),
                      work.residual().name(), work.fetch().name(), work.norm().name()};
  };
  EXPECT_THAT(names({}), ElementsAre("gelu", "gelu backward", "bias, residual", "fetch", "norm"));
  EXPECT_THAT(names({"model.activation=swiglu", "model.dropout=0.1"}),
              ElementsAre("swiglu", "swiglu backward", "bias, dropout, residual", "fetch", "norm"));
  EXPECT_THAT(names({"model.activation=relu", "model.kind=ffn"}),
              ElementsAre("relu", "relu backward", "bias, residual", "fetch of noise", "norm"));
}

TEST(PlanFit, SlowsMatmulsOfAKindAlikeAndFitsTheRestByBytes) {
  const MatmulRates matmuls = odd_rates();
  const auto product = [](std::string_view range, MatmulKind kind, double out, double beside) {
    const MatmulSize size = {kind, 64, out, 96};
    return RangeWork{range, size.flops(), 0.0, size, beside};
  };
  std::vector<RangeSample> samples;
  for (const double out : {64.0, 96.0, 128.0}) {
    const auto add_seconds = [&](const RangeWork& work, double warm) {
      samples.push_back({work, 2.0 * warm, warm});
    };
    const auto add = [&](const RangeWork& work, double slower) {
      add_seconds(work, slower * matmuls.seconds(*work.matmul) + 1e-10 * work.beside_bytes);
    };
    add(product("fc1 gemm", MatmulKind::kForward, out, 0.0), 1.1);
    add(product("fc2 gemm", MatmulKind::kForward, out, 0.0), 1.1);
    add(product("head wgrad", MatmulKind::kWeightGradient, out, 0.0), 1.3);
    add(product("fc1 wgrad", MatmulKind::kWeightGradient, out, 1e4 * out), 1.3);
    add_seconds({"norm", 0.0, 1e5 * out}, 2e-6 + 1e-5 * out);
    for (const char* kernel : {"gelu", "relu"}) {
      const RangeWork work = {.range = "activation", .bytes = 1e5 * out, .kernel = kernel};
      add_seconds(work, (*kernel == 'g' ? 3e-10 : 1e-10) * work.bytes);
    }
  }
  const auto costs = fit_ranges(samples, &RangeSample::warm, matmuls);
  ASSERT_EQ(costs.size(), 7u);
  EXPECT_NEAR(costs.at("gelu").per_byte, 3e-10, 1e-12);
  EXPECT_NEAR(costs.at("relu").per_byte, 1e-10, 1e-12);
  EXPECT_NEAR(costs.at("fc1 gemm").matmul, 1.1, 1e-3);
  EXPECT_NEAR(costs.at("fc2 gemm").matmul, 1.1, 1e-3);
  EXPECT_NEAR(costs.at("head wgrad").matmul, 1.3, 1e-3);
  EXPECT_NEAR(costs.at("fc1 wgrad").matmul, 1.3, 1e-3);
  EXPECT_NEAR(costs.at("fc1 wgrad").per_byte, 1e-10, 1e-12);
  EXPECT_NEAR(costs.at("norm").fixed, 2e-6, 1e-8);
  EXPECT_NEAR(costs.at("norm").per_byte, 1e-10, 1e-12);
  EXPECT_NEAR(fit_ranges(samples, &RangeSample::cold, matmuls).at("fc1 gemm").matmul, 2.2, 2e-3);
}

TEST(PlanFit, WaitsAreWhatAllCallsTookBeyondTheRest) {
  std::vector<CollectiveSample> samples;
  double since = 0.0;
  for (const double bytes : {1e3, 1e4, 1e5, 1e6, 1e7}) {
    since += 1e-3;
    samples.push_back({Collective::kAllReduce, 2, bytes, 1, 1e-5 + bytes / 5e9, since});
    samples.push_back({Collective::kAllGather, 2, bytes, 1, 2e-5 + bytes / 2 / 4e9, since});
  }
  samples[4].calls = 11;
  samples[4].seconds += 1e-3;  // one that waited
  const FittedCollectives found = fit_collectives(samples);
  EXPECT_NEAR(found.links.at(Collective::kAllReduce).latency, 1e-5, 1e-7);
  EXPECT_NEAR(found.links.at(Collective::kAllReduce).bytes_per_s, 5e9, 5e7);
  EXPECT_NEAR(found.links.at(Collective::kAllGather).latency, 2e-5, 2e-7);
  EXPECT_NEAR(found.links.at(Collective::kAllGather).bytes_per_s, 4e9, 4e7);
  EXPECT_NEAR(found.waits, 11e-3 / 60e-3, 1e-3) << "11 ms more in calls with 60 ms before them";
}

TEST(PlanCosts, OfARangeOrCollectiveThatTheFileHasNotAreRefused) {
  Costs costs;
  costs.matmuls = odd_rates();
  costs.ranges["norm"] = {1e-6, 0.0, 1e-10, 1.0};
  EXPECT_GT(costs.seconds({"norm", 0.0, 1e6}), 0.0);
  EXPECT_THROW(costs.seconds({"activation", 0.0, 1e6}), ConfigError);
  EXPECT_THROW(costs.seconds({.range = "norm", .bytes = 1e6, .kernel = "other"}), ConfigError);
  costs.collectives[Collective::kAllReduce] = {4e-6, 5e9};
  EXPECT_EQ(costs.link_of(Collective::kAllReduce).bytes_per_s, 5e9);
  EXPECT_THROW(costs.link_of(Collective::kAllGather), ConfigError);
}

TEST(SampleConfigs, FitAnyNumberOfRanks) {
  for (const int ranks : {2, 3, 6, 7, 12, 48, 96, 1000}) {
    const std::vector<Config> configs = split_configs(ranks);  // throws where one is not divisible
    EXPECT_EQ(configs.size(), 8u);
    for (const Config& config : configs) {
      EXPECT_EQ(config.world(), ranks);
    }
  }
}

TEST(Lattice, LeavesLargeMatmulsToTheRoundsThatAskForThem) {
  const auto device = make_cpu_device(1);
  Lattice lattice(*device, {DType::kF32, DType::kF32, DType::kF32}, largest_matmul(40e9));
  lattice.round(/*with_large=*/false);
  const auto rate = [rates = lattice.rates()](std::size_t row, std::size_t out, std::size_t in) {
    return rates[1][(row * kLatticeWidths.size() + out) * kLatticeWidths.size() + in];
  };
  EXPECT_GT(rate(0, 0, 0), 0.0);
  EXPECT_GT(rate(5, 0, 1), 0.0) << "2048 x 64 x 128, one of the largest of the small";
  EXPECT_EQ(rate(5, 0, 3), 0.0) << "2048 x 64 x 256";
}

TEST(Lattice, MeasuresWhatIsNotTooLarge) {
  constexpr double kLargest = 1 << 24;
  const auto device = make_cpu_device(1);
  Lattice lattice(*device, {DType::kF32, DType::kF32, DType::kF32}, kLargest);
  lattice.round(/*with_large=*/true);
  const auto rate = [rates = lattice.rates()](std::size_t row, std::size_t out, std::size_t in) {
    return rates[2][(row * kLatticeWidths.size() + out) * kLatticeWidths.size() + in];
  };
  EXPECT_GT(rate(2, 3, 3), 0.0) << "256 x 256 x 256";
  EXPECT_EQ(rate(2, 3, 4), 0.0) << "256 x 256 x 384";
  EXPECT_GT(rate(0, 1, 3), 0.0) << "64 x 128 x 256, a short one";
  EXPECT_EQ(rate(0, 3, 3), 0.0) << "64 x 256 x 256";
}

TEST(LargestMatmul, TakesAFewMillisecondsUnlessThatIsTooSmall) {
  EXPECT_EQ(largest_matmul(40e9), 1 << 28);
  EXPECT_EQ(largest_matmul(1e12), 2.5e9);
  const auto device = make_cpu_device(1);
  const double flops = Lattice::middle_rate(*device, {DType::kF32, DType::kF32, DType::kF32});
  EXPECT_GT(flops, 1e8);
  EXPECT_LT(flops, 1e13);
}

TEST(SampleSteps, AreColdInTheFirstMicroBatch) {
  const auto sample = [](const std::vector<double>& calls, std::int64_t micro_batches) {
    const RangeSample found = range_sample({"norm"}, calls, micro_batches);
    return std::pair(found.cold, found.warm);
  };
  EXPECT_EQ(sample({8.0, 6.0, 4.0, 4.0, 3.0, 1.0}, 3), std::pair(7.0, 3.0));
  EXPECT_EQ(sample({4.0, 2.0}, 1), std::pair(3.0, 3.0));
  EXPECT_EQ(sample({5.0}, 4), std::pair(5.0, 5.0)) << "once a step";
}

/// `settings` on one rank, as bench hardware trains it.
StepSamples sampled(const std::vector<std::string>& settings) {
  const Config config = parse_config(R"(threads: 1
model: {hidden: 32, ffn: 48, layers: 2}
data: {format: synthetic, seq_len: 32}
train: {micro_batch: 1, global_batch: 2, eval_every: 0}
)",
                                     {.file = "test", .overrides = settings});
  StepSamples samples;
  run_ranks(1, [&](World& world, Device& host) {
    Ledger ledger;
    const auto control = world.make_group("control", everyone(world), host, &ledger, nullptr);
    Session session(world, config, *control, ledger, Logger(0), one_thread_cpu());
    session.rank().precision = precision_of(config);
    samples = StepSampler(session.rank(), config).step();
  });
  return samples;
}

TEST(SampleSteps, TakeEveryRangeThatThePlannerKnows) {
  std::set<std::string_view> seen;
  for (const std::vector<std::string>& settings : {std::vector<std::string>{"model.kind=ffn"},
                                                   {"model.dropout=0.1"},
                                                   {"model.activation=swiglu", "precision=bf16"},
                                                   {"model.kind=ffn", "precision=fp16"}}) {
    const StepSamples samples = sampled(settings);  // throws where one is missing
    for (const RangeSample& sample : samples.ranges) {
      EXPECT_GT(std::min(sample.cold, sample.warm), 0.0) << sample.work.range;
      seen.insert(sample.work.name());
    }
  }
  for (const char* range : {"fc1 gemm", "gelu", "fc2 dgrad", "swiglu backward", "dropout backward",
                            "head wgrad", "squared error", "optimizer"}) {
    EXPECT_TRUE(seen.contains(range)) << range;
  }
}

}  // namespace
}  // namespace tandem::test
