// The planner: its layouts are the config's, its memory and traffic are the trainer's own, its
// clocks are the trainer's order, and what it says of the losers is true.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <regex>
#include <set>
#include <thread>

#include "core/device.h"
#include "core/error.h"
#include "tests/train/process.h"
#include "tests/train/training.h"
#include "train/data/source.h"
#include "train/plan/predict.h"
#include "train/plan/timeline.h"
#include "train/state.h"
#include "train/traffic.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// A machine of round numbers.
Hardware round_machine(bool gpu) {
  Hardware hardware;
  hardware.name = "round";
  hardware.gpu = gpu;
  hardware.ranks_per_host = 8;
  hardware.memory = 1e12;
  hardware.costs = {
      {.any = {.fixed = 1e-6, .per_flop = 1e-12, .per_byte = 1e-10}, .link = {1e-6, 1e9}}};
  hardware.network = {1e-5, 1e8};
  return hardware;
}

Config of(const Config& base, int tp, int dp, bool sequence_parallel = false) {
  Config config = with_layout(base, tp, dp, 2);
  config.parallel.sequence_parallel = sequence_parallel;
  return config;
}

TEST(PlanLayouts, AreThoseThatTheConfigsRulesAllow) {
  Config config = small_config();  // ffn 32, 8 samples a step, seq_len 24
  config.model.ffn = 48;
  const std::vector<Config> layouts = legal_layouts(config, 4);
  std::set<std::pair<int, int>> shapes;
  bool shards = false;
  for (const Config& layout : layouts) {
    EXPECT_EQ(layout.world(), 4);
    EXPECT_EQ(layout.parallel.dp * layout.train.micro_batch * layout.accumulation(), 8);
    shapes.insert({layout.parallel.tp, layout.parallel.dp});
    shards = shards || layout.parallel.sequence_parallel;
    EXPECT_TRUE(layout.parallel.tp > 1 || !layout.parallel.sequence_parallel);
  }
  EXPECT_EQ(shapes, (std::set<std::pair<int, int>>{{1, 4}, {2, 2}, {4, 1}}));
  EXPECT_TRUE(shards);
  config.data.seq_len = 23;  // no tp divides it
  for (const Config& layout : legal_layouts(config, 4)) {
    EXPECT_FALSE(layout.parallel.sequence_parallel);
  }
  config.model.ffn = 49;
  for (const Config& layout : legal_layouts(config, 4)) {
    EXPECT_EQ(layout.parallel.tp, 1);
  }
  config.train.global_batch = 7;
  EXPECT_THROW(legal_layouts(config, 4), ConfigError);
}

TEST(PlanMemory, IsWhatTheTrainerAllocates) {
  const Hardware hardware = round_machine(false);
  for (const Config& config : legal_layouts(small_config(), 4)) {
    const Prediction prediction = predict(config, hardware, SampledRows(config).counts(config));
    const Layout layout = {config.parallel.tp, config.parallel.dp, 3};
    const Precision precision = precision_of(config);
    Arena measured;
    TrainState(config, layout, precision, max_rows(config), measured);
    const auto device = one_thread_cpu();
    Arena arena(*device, measured);
    const TrainState state(config, layout, precision, max_rows(config), arena);
    for (std::size_t c = 0; c < kMemoryCategories; ++c) {
      EXPECT_EQ(prediction.memory[c], arena.bytes(static_cast<MemoryCategory>(c)));
    }
  }
}

// The reference device multiplies in double, without oneDNN.
TEST(PlanMemory, OfTheReferenceDeviceHasNoLibraries) {
  Config config = of(small_config(), 1, 1);
  const RowCounts counts = SampledRows(config).counts(config);
  EXPECT_GT(predict(config, round_machine(false), counts).beside.libraries, 0u);
  config.device = DeviceChoice::kReference;
  EXPECT_EQ(predict(config, round_machine(false), counts).beside.libraries, 0u);
}

// The rows that were assumed are the rows that a run counts, so the traffic is, too.
TEST(PlanTraffic, OfPackedDataIsTheLedgersToTheByte) {
  Config base = small_config();
  base.data.documents = Documents::kPacked;
  for (const Config& config :
       {of(base, 1, 2), of(base, 2, 1), of(base, 2, 2), of(base, 2, 2, true)}) {
    const Prediction prediction =
        predict(config, round_machine(false), SampledRows(config).counts(config));
    train(config, {.inspect =
                       [&](const RankContext& rank, const TrainState&, const StepResult&) {
                         std::uint64_t calls = 0, bytes = 0, predicted_calls = 0,
                                       predicted_bytes = 0;
                         for (const Ledger::Line& line : rank.ledger->lines()) {
                           if (line.traffic.key.phase == JobPhase::kStep) {
                             calls += line.traffic.calls;
                             bytes += line.traffic.bytes;
                           }
                         }
                         for (const Traffic& traffic : prediction.traffic) {
                           predicted_calls += traffic.calls;
                           predicted_bytes += traffic.bytes;
                         }
                         EXPECT_EQ(predicted_calls, calls);
                         EXPECT_EQ(predicted_bytes, bytes);
                       },
                   .observe = false});
  }
}

TEST(PlanRows, AreCountedWhereDocumentsArePadded) {
  Config config = of(small_config(), 1, 2);
  config.train.global_batch = 16;
  config.train.micro_batch = 4;
  config.data.seq_len = 192;  // so that there are many numbers of rows
  const SampledRows sampled(config);
  EXPECT_THAT(sampled.note(), HasSubstr("sampled"));
  // The same from both data ranks' own batches.
  double total = 0.0;
  std::set<std::int64_t> of_first, of_second, of_both;
  const auto first = make_data_source(config, Layout{1, 2, 0});
  const auto second = make_data_source(config, Layout{1, 2, 1});
  constexpr int kSteps = 8;
  for (int step = 0; step < kSteps; ++step) {
    const auto a = first->fetch_step(step * 16);
    const auto b = second->fetch_step(step * 16);
    for (std::size_t m = 0; m < a.size(); ++m) {
      total += static_cast<double>(std::max(a[m].rows, b[m].rows));
      of_first.insert(a[m].rows);
      of_second.insert(b[m].rows);
      of_both.insert({a[m].rows, b[m].rows});
    }
  }
  EXPECT_DOUBLE_EQ(sampled.counts(config).rows, total / (kSteps * 2));
  ASSERT_GT(of_both.size(), std::max(of_first.size(), of_second.size()));
  EXPECT_EQ(sampled.counts(config).different,
            static_cast<double>(std::max(of_first.size(), of_second.size())));
  config.data.documents = Documents::kPacked;
  EXPECT_THAT(SampledRows(config).note(), HasSubstr("exact"));
  config.data.format = DataFormat::kText;
  config.data.path = "no such file";
  EXPECT_THAT(SampledRows(config).note(), HasSubstr("assumed full"));
  EXPECT_EQ(SampledRows(config).counts(config).rows, 768.0) << "4 x 192 rows";
}

TEST(PlanTimeline, WhatIsComputedMeanwhileHidesACollective) {
  const TimedCollective sum = {Axis::kTensor, 3.0};
  Timeline device(true);
  device.run(1.0);
  const double done = device.start(sum);
  device.run(2.0);
  device.wait(Axis::kTensor, done);
  EXPECT_EQ(device.now(), 4.0);
  EXPECT_EQ(device.exposed(Axis::kTensor), 1.0);
  Timeline host(false);
  host.run(1.0);
  host.wait(Axis::kTensor, host.start(sum));
  host.run(2.0);
  EXPECT_EQ(host.now(), 6.0);
  EXPECT_EQ(host.exposed(Axis::kTensor), 3.0);
}

TEST(PlanTimeline, OnTheHostACollectiveWaitsForSlowerRanks) {
  Timeline time(false, 0.1);
  time.run(1.0);
  time.finish({Axis::kTensor, 0.5});
  EXPECT_DOUBLE_EQ(time.now(), 1.6) << "a tenth of what was computed before";
  time.finish({Axis::kTensor, 0.5});
  EXPECT_DOUBLE_EQ(time.now(), 2.1) << "nothing was";
  time.run(2.0);
  time.finish({Axis::kData, 0.0});  // a group of one
  time.run(1.0);
  time.finish({Axis::kData, 0.5});
  EXPECT_DOUBLE_EQ(time.exposed(Axis::kTensor), 1.1);
  EXPECT_DOUBLE_EQ(time.exposed(Axis::kData), 0.8);
  EXPECT_DOUBLE_EQ(time.compute(), 4.0);
}

TEST(PlanTimeline, CollectivesOfAGroupFollowOneAnother) {
  Timeline time(true);
  const double first = time.start({Axis::kData, 5.0});
  const double second = time.start({Axis::kData, 1.0});
  const double other = time.start({Axis::kTensor, 1.0});
  EXPECT_EQ(first, 5.0);
  EXPECT_EQ(second, 6.0);
  EXPECT_EQ(other, 1.0);
}

TEST(PlanTime, HasEveryRangeOfAStep) {
  const auto ranges = [](ModelKind kind, bool gpu) {
    Hardware hardware = round_machine(gpu);
    hardware.costs = {{.any = {.fixed = 1.0}}};
    Config config = of(small_config(), 1, 1);
    config.model.kind = kind;
    config.data.documents = Documents::kPacked;
    return predict(config, hardware, SampledRows(config).counts(config)).time.compute;
  };
  // Two micro-batches of two blocks of 11 ranges, without dropout, between an upload and a loss;
  // the share of each in the fetch, the gradients' end and the update.
  EXPECT_DOUBLE_EQ(ranges(ModelKind::kFfn, false), 2 * (2 + 2 * 11) + 2 + 2);
  EXPECT_DOUBLE_EQ(ranges(ModelKind::kFfn, true), 2 * (2 + 2 * 9) + 2 + 2) << "gelu is in matmuls";
  // A language model has embedding, norm and head twice, the head's two gradients, and its loss.
  EXPECT_DOUBLE_EQ(ranges(ModelKind::kMlpLm, false), 2 * (9 + 2 * 11) + 2 + 2);
}

TEST(PlanTime, IsColdAsFarAsCachesDoNotKeepAMicroBatch) {
  Hardware hardware = round_machine(false);
  hardware.costs = {{.any = {.fixed = 1.0}, .cold_ranges = {{"norm", {.fixed = 3.0}}}}};
  hardware.ranks_per_host = 1;
  hardware.network.reset();
  const auto predicted = [&](int dp, double cache) {
    Config config = of(small_config(), 1, dp);
    config.data.documents = Documents::kPacked;
    hardware.cache = cache;
    return predict(config, hardware, SampledRows(config).counts(config));
  };
  const auto working_set = [](const Prediction& prediction) {
    double bytes = 0.0;
    for (const MemoryCategory category :
         {MemoryCategory::kWeights, MemoryCategory::kMainGrads, MemoryCategory::kActivations}) {
      bytes += prediction.memory[static_cast<std::size_t>(category)];
    }
    return bytes;
  };
  // A micro-batch has three norms, of two blocks and the head, which take 1 or 3.
  const auto norms = [](const Prediction& prediction) {
    return 3.0 * static_cast<double>(prediction.config.accumulation());
  };
  const Prediction kept = predicted(1, 0.0);
  EXPECT_DOUBLE_EQ(predicted(1, working_set(kept)).time.compute, kept.time.compute);
  EXPECT_DOUBLE_EQ(predicted(1, working_set(kept) / 4.0).time.compute,
                   kept.time.compute + norms(kept) * 0.75 * 2.0);
  // Two ranks on one CPU are half as fast, and leave each other half of its cache.
  const Prediction crowded = predicted(2, 0.0);
  EXPECT_DOUBLE_EQ(predicted(2, working_set(crowded)).time.compute,
                   crowded.time.compute + 2.0 * norms(crowded) * 0.5 * 2.0);
}

/// The steps of tp x dp ranks are as much longer with each micro-batch more.
void expect_equal_micro_batches(const Hardware& hardware, int tp, int dp) {
  const auto seconds = [&](std::int64_t accumulation) {
    Config config = of(small_config(), tp, dp);
    config.data.documents = Documents::kPacked;
    config.train.micro_batch = 2;
    config.train.global_batch = 2 * dp * accumulation;
    return predict(config, hardware, SampledRows(config).counts(config)).time;
  };
  const double each = seconds(4).total() - seconds(3).total();
  EXPECT_GT(each, 0.0);
  EXPECT_NEAR(seconds(10).total(), seconds(3).total() + 7.0 * each, 1e-9);
  EXPECT_NEAR(seconds(3).total(), seconds(2).total() + each, 1e-9);
  double phases = 0.0;
  for (const StepTime::Phase& phase : seconds(10).phases) {
    phases += phase.seconds;
  }
  EXPECT_NEAR(phases, seconds(10).total(), 1e-9);
}

TEST(PlanTime, OfEveryMicroBatchInTheMiddleIsTheSame) {
  expect_equal_micro_batches(round_machine(true), 2, 2);
  Hardware host = round_machine(false);
  host.costs.front().waits = 0.1;
  expect_equal_micro_batches(host, 2, 2);
  expect_equal_micro_batches(host, 1,
                             4);  // none waits before the last micro-batch, for all of them
}

TEST(PlanTime, CollectivesCostLatencyAndBytes) {
  const Hardware host = round_machine(false);
  EXPECT_EQ(host.seconds(host.costs[0], Collective::kAllReduce, 1e9, 1, 1), 0.0);
  EXPECT_DOUBLE_EQ(host.seconds(host.costs[0], Collective::kAllReduce, 1e9, 2, 1), 1e-6 + 1.0);
  EXPECT_DOUBLE_EQ(host.seconds(host.costs[0], Collective::kAllGather, 1e9, 2, 1), 1e-6 + 0.5);
  EXPECT_DOUBLE_EQ(host.seconds(host.costs[0], Collective::kAllReduce, 1e9, 2, 8), 1e-5 + 10.0)
      << "two hosts";
  const Hardware gpu = round_machine(true);
  EXPECT_DOUBLE_EQ(gpu.seconds(gpu.costs[0], Collective::kAllReduce, 1e9, 4, 1), 6.0 * 1e-6 + 1.5)
      << "a ring";
  EXPECT_NEAR(gpu.seconds(gpu.costs[0], Collective::kAllReduce, 8.0, 8, 1), 6e-6, 1e-7) << "a tree";
}

TEST(Plan, PutsTheFastestFirstAndSaysWhyTheOthersLose) {
  Config config = small_config();
  config.train.global_batch = 32;
  Hardware hardware = round_machine(true);
  hardware.costs[0].link = {1e-3, 1e9};
  const SampledRows sampled(config);
  const auto layouts = plan(config, 4, hardware, sampled);
  EXPECT_TRUE(std::is_sorted(
      layouts.begin(), layouts.end(),
      [](const Prediction& a, const Prediction& b) { return a.time.total() < b.time.total(); }));
  EXPECT_EQ(layouts.front().why, "");
  EXPECT_LT(layouts.front().config.parallel.tp, 4) << "collectives are slow here";
  for (const Prediction& prediction : layouts) {
    if (prediction.config.parallel.tp == 4) {
      EXPECT_THAT(prediction.why, HasSubstr("tp 4"));
      EXPECT_THAT(prediction.why, HasSubstr("of tensor-parallel collectives"));
    }
  }
}

TEST(Plan, PutsWhatDoesNotFitLastInWords) {
  Config config = small_config();
  Hardware hardware = round_machine(true);
  const SampledRows sampled(config);
  const auto all = plan(config, 4, hardware, sampled);
  double least = 1e18, most = 0.0;
  for (const Prediction& p : all) {
    least = std::min(least, p.memory_bytes());
    most = std::max(most, p.memory_bytes());
  }
  hardware.memory = (least + most) / 2.0;
  const auto some = plan(config, 4, hardware, sampled);
  EXPECT_EQ(some.size(), all.size());
  EXPECT_TRUE(some.front().fits);
  EXPECT_FALSE(some.back().fits);
  EXPECT_THAT(some.back().why, HasSubstr("does not fit: "));
  EXPECT_TRUE(
      std::is_partitioned(some.begin(), some.end(), [](const Prediction& p) { return p.fits; }));
  hardware.gpu = false;  // the ranks of a host share its memory
  EXPECT_FALSE(plan(config, 4, hardware, sampled).front().fits);
}

TEST(PlanHardware, ShippedFilesLoadAndStateTheirSources) {
  const ScratchFolder folder;
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(TANDEM_SOURCE_DIR);
  for (const char* name : {"h100", "H200", "a100", "configs/hardware/h100.yaml"}) {
    const Hardware hardware = load_hardware(name, DType::kBF16);
    EXPECT_FALSE(hardware.sources.empty());
    const RangeCost& any = hardware.costs.front().any;
    EXPECT_GT(hardware.peak_flops, 1.0 / any.per_flop) << "assumed less than the peak";
    EXPECT_GT(hardware.costs.front().link.bytes_per_s, hardware.network->bytes_per_s);
    EXPECT_GT(hardware.memory, hardware.reserved);
    EXPECT_GT(load_hardware(name, DType::kF32).costs.front().any.per_flop, any.per_flop);
  }
  for (const char* name : {"epyc_2cpu", "xeon_2cpu"}) {
    const Hardware cpu = load_hardware(name, DType::kBF16);
    EXPECT_FALSE(cpu.sources.empty());
    EXPECT_EQ(cpu.costs.size(), 2u) << "one rank, and two";
  }
  std::filesystem::current_path(here);
}

class PlanProgram : public ::testing::Test {
 protected:
  Outcome plan(std::vector<std::string> more) {
    more.insert(more.begin(), {TANDEM_PLAN, "--config", "small.yaml"});
    return run(more, folder_);
  }
  PlanProgram() {
    folder_.write("small.yaml", R"(parallel: {tp: 2, dp: 2}
model: {kind: ffn, hidden: 16, ffn: 32, layers: 2}
data: {format: synthetic, seq_len: 16}
train: {steps: 5, micro_batch: 2, global_batch: 64}
)");
    folder_.write("hardware.yaml", text_);
  }
  const std::string text_ = R"(name: here
kind: cpu
sources: ["made up"]
ranks_per_host: 4
memory_gib: 8
reserved_gib: 0
peak_tflops: {fp32: 0}
matmul_tflops: {fp32: 0.1}
memory_gb_per_s: 10
range_us: 2
host_link: {latency_us: 10, gb_per_s: 5}
network: {latency_us: 50, gb_per_s: 1}
step_us: 0
uncertainty: 0.1
)";
  ScratchFolder folder_;
};

TEST_F(PlanProgram, PrintsATableAndWritesAllLayouts) {
  const Outcome outcome =
      plan({"--world", "16", "--hardware", "hardware.yaml", "--json", "p.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("tandem plan: small on 16 ranks of here"));
  const json plan = json::parse(folder_.read("p.json"));
  ASSERT_GT(plan["layouts"].size(), 10u);
  double last = 0.0;
  for (const json& layout : plan["layouts"]) {
    EXPECT_EQ(layout["tp"].get<int>() * layout["dp"].get<int>(), 16);
    EXPECT_TRUE(layout["fits"]);
    EXPECT_GE(layout["step_ms"].get<double>(), last);
    last = layout["step_ms"];
    EXPECT_NEAR(layout["tokens_per_s"].get<double>() * last / 1e3, 64.0 * 16.0, 1e-6);
    for (const char* key :
         {"zero", "sequence_parallel", "micro_batch", "accumulation", "memory_bytes"}) {
      EXPECT_TRUE(layout.contains(key)) << key;
    }
  }
  EXPECT_FALSE(plan["layouts"][0]["traffic"].empty());
}

TEST_F(PlanProgram, HoldsARunAgainstItsPrediction) {
  const Outcome trained = run({TANDEM_TRAIN, "--config", "small.yaml", "--steps", "3"}, folder_);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::vector<std::string> against = {TANDEM_PLAN,      "--against",     "runs/small",
                                            "--hardware",     "hardware.yaml", "--json",
                                            "comparison.json"};
  Outcome outcome = run(against, folder_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("traffic: calls and bytes of all"));
  json comparison = json::parse(folder_.read("comparison.json"));
  EXPECT_TRUE(comparison["traffic_differences"].empty());
  EXPECT_GT(comparison["labels"], 5);
  std::set<std::string> whats;
  for (const json& time : comparison["times"]) {
    whats.insert(time["what"]);
    EXPECT_GE(time["measured_ms"], 0.0);
  }
  for (const char* what : {"step", "exposed communication", "forward", "backward", "optimizer"}) {
    EXPECT_TRUE(whats.contains(what)) << what;
  }
  // A run whose traffic is another's is found out.
  json traffic = json::parse(folder_.read("runs/small/traffic.json"));
  traffic["rows"] = traffic["rows"].get<int>() + 64;
  folder_.write("runs/small/traffic.json", traffic.dump());
  outcome = run(against, folder_);
  EXPECT_THAT(outcome.out, HasSubstr("labels differ"));
  EXPECT_THAT(outcome.out,
              HasSubstr("tp all_reduce fp32 `layers.0 g.forward`: +0 calls, -4096 bytes"));
  traffic["labels"] = json::array({{{"phase", "step"}, {"group", "tp"}}});
  folder_.write("runs/small/traffic.json", traffic.dump());
  outcome = run(against, folder_);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("traffic.json is not as a run writes it"));
  outcome = run({TANDEM_PLAN, "--against", "runs/none", "--hardware", "hardware.yaml"}, folder_);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("runs/none: is not a run directory"));
  outcome = run({TANDEM_PLAN, "--against", "runs/small", "--set", "precision=bf16"}, folder_);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--set excludes --against")) << "it takes the run's config";
}

TEST_F(PlanProgram, HoldsARunThatWasKilled) {
  const auto kill_it = [&](const Running& running) {
    for (int i = 0; i < 3000 && !folder_.has("runs/small/traffic.json"); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ::kill(running.pid, SIGKILL);
  };
  const Outcome killed = run({TANDEM_TRAIN, "--config", "small.yaml", "--steps", "1000000"},
                             folder_, {.meanwhile = kill_it});
  EXPECT_EQ(killed.code, 128 + SIGKILL);
  const Outcome outcome =
      run({TANDEM_PLAN, "--against", "runs/small", "--hardware", "hardware.yaml"}, folder_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("traffic: calls and bytes of all"));
}

TEST_F(PlanProgram, RefusesWhatItCannotReadInWords) {
  Outcome outcome = plan({"--hardware", "b200"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--hardware b200: no such file"));
  folder_.write("typo.yaml", text_ + "lanes: 3\n");
  outcome = plan({"--hardware", "typo.yaml"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("typo.yaml:15:1: lanes = 3: no such key"));
  folder_.write("kind.yaml", std::regex_replace(text_, std::regex("kind: cpu"), "kind: CPUs"));
  outcome = plan({"--hardware", "kind.yaml"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("kind.yaml:2:1: kind = CPUs: write gpu or cpu"));
  folder_.write("ranks.yaml", text_ + "ranks_are: thread\n");
  outcome = plan({"--hardware", "ranks.yaml"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("ranks.yaml:15:1: ranks_are = thread: write threads or"));
  outcome = plan({"--hardware", "hardware.yaml", "--set", "precision=bf16"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("bf16 is missing"));
  outcome = plan({"--hardware", "hardware.yaml", "--world", "61"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("no layout of 61 ranks is possible"));
  outcome = plan({"--worl", "3"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("not expected: --worl 3\n"));
}

TEST_F(PlanProgram, SaysThatNothingFits) {
  folder_.write("tiny.yaml",
                std::regex_replace(text_, std::regex("memory_gib: .*"), "memory_gib: 1.0e-4"));
  const Outcome outcome = plan({"--hardware", "tiny.yaml"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("none of these layouts fits: try more ranks"));
}

TEST_F(PlanProgram, FailsWhereItsTableIsLost) {
  const std::string command =
      std::string(TANDEM_PLAN) + " --config small.yaml --hardware hardware.yaml > /dev/full";
  const Outcome outcome = run({"/bin/sh", "-c", command}, folder_);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("stdout cannot be written"));
}

}  // namespace
}  // namespace tandem::test
