// What a run of the real program leaves behind, and that it can be had again.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/train/small_run.h"

namespace tandem::test {

namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// The text of losses and gradient norms, which is all that two equal runs must share.
std::vector<std::string> losses(const std::string& metrics) {
  std::vector<std::string> found;
  static const std::regex kPattern(R"re("loss": [^,]*, "grad_norm": [^,]*)re");
  for (const std::string& line : lines_of(metrics)) {
    std::smatch match;
    if (std::regex_search(line, match, kPattern)) {
      found.push_back(match.str());
    }
  }
  return found;
}

TEST(RunDirectory, SaysAtTheStartWhatTheRunIs) {
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  const Outcome outcome = run(train({"--config", "small.yaml"}), folder);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json facts = json::parse(folder.read("runs/small/run.json"));
  EXPECT_FALSE(facts["version"].get<std::string>().empty());
  EXPECT_THAT(facts["started"].get<std::string>(), testing::MatchesRegex("20..-..-..T..:..:..Z"));
  // The table that was printed, row by row.
  for (const auto& [label, value] : facts["startup"].items()) {
    EXPECT_THAT(outcome.out, testing::ContainsRegex(label + " +"));
    EXPECT_THAT(outcome.out, HasSubstr(value.get<std::string>()));
  }
  EXPECT_EQ(facts["startup"]["layout"], "tp 2 x dp 2 = 4 ranks");
  EXPECT_EQ(facts["memory_bytes"].size(), 9u);
  EXPECT_GT(facts["memory_bytes"]["weights"], 0);
}

// `verify --grid` tells a program what it tells its reader.
TEST(VerifyGrid, WritesEveryLayout) {
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  const Outcome outcome = run({TANDEM_VERIFY, "--config", "small.yaml", "--grid", "--json",
                               "grid.json", "--set", "model.ffn=33", "--set", "parallel.tp=1",
                               "--set", "parallel.dp=2", "--set", "train.global_batch=4"},
                              folder);
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const json grid = json::parse(folder.read("grid.json"));
  EXPECT_TRUE(grid["pass"]);
  // tp 1 x dp 2 and tp 2 x dp 1, the latter with and without token shards; two accumulations,
  // for data ranks also with ZeRO-1; three precisions. 33 units are not cut in two.
  ASSERT_EQ(grid["layouts"].size(), 9u + 12u);
  for (const json& layout : grid["layouts"]) {
    EXPECT_EQ(layout["pass"], layout["tp"] == 1) << layout;
    EXPECT_EQ(layout["possible"], layout["tp"] == 1) << layout;
    EXPECT_EQ(layout["reason"].get<std::string>().empty(), layout["tp"] == 1) << layout;
  }
}

class SmallRun : public testing::Test {
 protected:
  SmallRun() { folder_.write("small.yaml", kSmall); }

  Outcome start(const std::vector<std::string>& command) {
    const Outcome outcome = run(command, folder_);
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    EXPECT_EQ(outcome.err, "");
    expect_clean_end(outcome);
    return outcome;
  }
  Outcome start_small(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--config", "small.yaml"});
    return start(train(more));
  }
  std::string metrics(const std::string& file = "runs/small/metrics.jsonl") const {
    return folder_.read(file);
  }

  ScratchFolder folder_;
};

TEST_F(SmallRun, WritesOneLineOfMetricsPerStepWithEveryKey) {
  const Outcome outcome = start_small({"--set", "log.every=2"});
  const auto lines = lines_of(metrics());
  ASSERT_EQ(lines.size(), 5u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const json line = json::parse(lines[i]);
    for (const char* key :
         {"loss", "grad_norm", "lr", "tokens", "consumed_samples", "step_ms", "tokens_per_s",
          "tflops_per_rank", "roof_fraction", "comm_exposed_ms", "skipped_steps", "loss_scale",
          "rows", "comm_calls", "comm_bytes", "comm_ms"}) {
      ASSERT_TRUE(line.contains(key)) << key;
      EXPECT_TRUE(line[key].is_number()) << key;
    }
    EXPECT_EQ(line["step"], i + 1);
    EXPECT_EQ(line["consumed_samples"], 8 * (i + 1));
    EXPECT_EQ(line["skipped_steps"], 0);
    EXPECT_EQ(line["loss_scale"], 1);
    EXPECT_GT(line["roof_fraction"], 0.0);
    EXPECT_LE(line["comm_exposed_ms"], line["step_ms"]);
  }
  // The console is paced by log.every; the file is not.
  EXPECT_EQ(count(outcome.out, "  loss "), 4u) << "steps 1, 2, 4 and 5";
  EXPECT_THAT(outcome.out, HasSubstr("layout  tp 2 x dp 2 = 4 ranks"));
}

TEST_F(SmallRun, LeavesItsTrafficByLabelAndTheSameTotalsByStep) {
  start_small();
  std::uint64_t calls = 0, bytes = 0, rows = 0;
  double ms = 0.0;
  for (const std::string& text : lines_of(metrics())) {
    const json line = json::parse(text);
    calls += line["comm_calls"].get<std::uint64_t>();
    bytes += line["comm_bytes"].get<std::uint64_t>();
    rows += line["rows"].get<std::uint64_t>();
    ms += line["comm_ms"].get<double>();
    EXPECT_EQ(line["comm_exposed_ms"], line["comm_ms"]) << "collectives hold the host";
  }
  const json traffic = json::parse(folder_.read("runs/small/traffic.json"));
  EXPECT_EQ(traffic["rank"], 0);
  EXPECT_EQ(traffic["tp"], 2);
  EXPECT_EQ(traffic["dp"], 2);
  EXPECT_EQ(traffic["first_step"], 1);
  EXPECT_EQ(traffic["last_step"], 5);
  EXPECT_EQ(traffic["rows"], rows);
  std::map<std::string, json> phases;
  for (const json& phase : traffic["phases"]) {
    phases[phase["phase"]] = phase;
  }
  EXPECT_EQ(phases["step"]["calls"], 5);
  EXPECT_EQ(phases["step/micro-batch/forward"]["calls"], traffic["micro_batches"]);
  double inside = 0.0;
  for (const char* part :
       {"fetch", "micro-batch", "finish gradients", "loss and gradient norm", "optimizer"}) {
    inside += phases[std::string("step/") + part]["ms"].get<double>();
  }
  EXPECT_LE(inside, phases["step"]["ms"].get<double>() + 0.01);
  std::uint64_t label_calls = 0, label_bytes = 0;
  double label_ms = 0.0;
  bool found = false;
  for (const json& label : traffic["labels"]) {
    if (label["phase"] == "step") {
      label_calls += label["calls"].get<std::uint64_t>();
      label_bytes += label["bytes"].get<std::uint64_t>();
      label_ms += label["ms"].get<double>();
    }
    if (label["label"] == "layers.0 g.forward") {
      found = true;
      EXPECT_EQ(label["group"], "tp");
      EXPECT_EQ(label["ranks"], 2);
      EXPECT_EQ(label["op"], "all_reduce");
      EXPECT_EQ(label["dtype"], "fp32");
      EXPECT_EQ(label["calls"], traffic["micro_batches"]);
      EXPECT_EQ(label["sent_bytes"], label["bytes"]) << "2 (n - 1) / n of two ranks";
      EXPECT_EQ(label["exposed_ms"], label["ms"]);
    }
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(label_calls, calls);
  EXPECT_EQ(label_bytes, bytes);
  EXPECT_NEAR(label_ms, ms, 0.01 + 1e-3 * ms) << "lines are rounded";
}

TEST_F(SmallRun, TracesTheStepsThatAreAskedForOnATrackPerRankAndGroup) {
  start_small({"--set", "profile.trace=true", "--set", "profile.steps=[2, 3]"});
  const json trace = json::parse(folder_.read("runs/small/trace.json"));
  std::map<std::pair<int, int>, std::string> tracks;
  std::map<std::string, json> flows_from, flows_to;
  std::map<int, std::set<int>> steps;
  std::size_t sums = 0, nested = 0;
  for (const json& event : trace["traceEvents"]) {
    const std::string name = event["name"], phase = event["ph"];
    const int rank = event["pid"], track = event["tid"];
    if (phase == "M" && name == "thread_name") {
      tracks[{rank, track}] = event["args"]["name"];
    } else if (phase == "s") {
      flows_from[event["id"]] = event;
    } else if (phase == "f") {
      flows_to[event["id"]] = event;
    } else if (phase == "X") {
      EXPECT_GE(event["ts"].get<double>(), 0.0);
      EXPECT_GE(event["dur"].get<double>(), 0.0);
      if (name == "step") {
        steps[rank].insert(event["args"]["step"].get<int>());
      }
      if (track > 0 && name == "layers.0 g.forward all_reduce") {
        ++sums;
        EXPECT_EQ(event["args"]["bytes"].get<int>() % (64 * 16 * 4), 0);
      }
      nested += name == "fc2 wgrad";
    }
  }
  const std::set<int> asked = {2, 3};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(steps[rank], asked) << "rank " << rank;
    EXPECT_EQ((tracks[{rank, 0}]), "compute");
    EXPECT_EQ((tracks[{rank, 1}]), "communication tp");
    EXPECT_EQ((tracks[{rank, 2}]), "communication dp");
  }
  // 4 ranks, 2 steps, 2 micro-batches.
  EXPECT_EQ(sums, 16u);
  EXPECT_EQ(nested, 32u) << "of two blocks";
  EXPECT_FALSE(flows_from.empty());
  EXPECT_EQ(flows_from.size(), flows_to.size());
  for (const auto& [id, from] : flows_from) {
    ASSERT_TRUE(flows_to.contains(id));
    EXPECT_EQ(from["pid"], flows_to[id]["pid"]);
    EXPECT_GT(from["tid"], 0);
    EXPECT_EQ(flows_to[id]["tid"], 0);
    EXPECT_GE(flows_to[id]["ts"], from["ts"]);
  }
}

// The weights that the last step gathers are waited for by a step that is not traced, or never.
TEST_F(SmallRun, DrawsNoArrowWithoutBothItsEnds) {
  start_small(
      {"--set", "profile.trace=true", "--set", "profile.steps=[2, 3]", "--set", "parallel.zero=1"});
  std::set<std::string> from, to;
  std::size_t gathers = 0;
  const json trace = json::parse(folder_.read("runs/small/trace.json"));
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "s") {
      from.insert(event["id"]);
    } else if (event["ph"] == "f") {
      to.insert(event["id"]);
    }
    gathers +=
        event["ph"] == "X" && event["tid"] > 0 && event["name"] == "weights layers.0 all_gather";
  }
  EXPECT_EQ(gathers, 8u) << "4 ranks, 2 steps";
  EXPECT_FALSE(from.empty());
  EXPECT_EQ(from, to);
}

TEST_F(SmallRun, WritesLossAndNormWithNineDigits) {
  start_small();
  std::size_t longest = 0;
  static const std::regex kPattern(R"re("(loss|grad_norm)": ([0-9.e+-]+))re");
  const std::string text = metrics();
  int seen = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), kPattern), end; it != end; ++it, ++seen) {
    const std::string number = (*it)[2];
    EXPECT_EQ(number, fmt::format("{:.9g}", std::stod(number)));
    const std::string digits = std::regex_replace(number, std::regex("^0|[.]|e.*"), "");
    longest = std::max(longest, digits.size());
  }
  EXPECT_EQ(seen, 10);
  EXPECT_EQ(longest, 9u);
}

// B134: tokens per second are those of the whole job, whatever is accumulated, and tensor-parallel
// ranks see the same ones.
TEST_F(SmallRun, CountsTheTokensOfTheWholeJobOnce) {
  start_small({"--set", "data={format: synthetic, seq_len: 128, documents: packed}", "--set",
               "train={steps: 3, micro_batch: 2, global_batch: 16, eval_every: 0}"});
  for (const std::string& text : lines_of(metrics())) {
    const json line = json::parse(text);
    EXPECT_EQ(line["tokens"], 2 * 2 * 4 * 128);
    const double seconds = line["step_ms"].get<double>() / 1e3;
    EXPECT_NEAR(line["tokens_per_s"].get<double>() * seconds, 2048.0, 2.0);
  }
}

TEST_F(SmallRun, RepeatsItselfFromTheConfigItLeft) {
  start_small({"--set", "optim.lr=0.003", "--set", "optim.eps=3e-7", "--set", "seed=5"});
  const std::string config = folder_.read("runs/small/config.yaml");
  start(train({"--config", "runs/small/config.yaml", "--set", "log.dir=again"}));
  EXPECT_THAT(losses(metrics()), testing::SizeIs(5));
  EXPECT_EQ(losses(metrics()), losses(metrics("again/small/metrics.jsonl")));
  EXPECT_THAT(config, HasSubstr("dir: runs\n"));
  EXPECT_EQ(std::regex_replace(folder_.read("again/small/config.yaml"), std::regex("dir: again"),
                               "dir: runs"),
            config);
}

TEST_F(SmallRun, KeepsTheMetricsOfEarlierRuns) {
  start_small({"--set", "seed=1"});
  const std::string first = metrics();
  start_small({"--set", "seed=2"});
  const std::string second = metrics();
  start_small({"--set", "seed=1"});
  EXPECT_EQ(metrics("runs/small/metrics.1.jsonl"), first);
  EXPECT_EQ(metrics("runs/small/metrics.2.jsonl"), second);
  EXPECT_EQ(losses(metrics()), losses(first));
  EXPECT_NE(losses(first), losses(second));
}

TEST_F(SmallRun, EndsAtTheStepOfTheCommandLine) {
  const Outcome outcome = start_small({"--steps", "2"});
  EXPECT_THAT(losses(metrics()), testing::SizeIs(2));
  EXPECT_THAT(outcome.out, HasSubstr("2/2"));
  EXPECT_THAT(folder_.read("runs/small/config.yaml"), HasSubstr("steps: 2\n"));
}

TEST_F(SmallRun, LeavesNothingAfterADryRun) {
  const Outcome outcome = start_small({"--dry-run"});
  EXPECT_THAT(outcome.out, HasSubstr("layout  tp 2 x dp 2 = 4 ranks"));
  EXPECT_THAT(outcome.out, HasSubstr("memory  "));
  EXPECT_FALSE(folder_.has("runs"));
}

TEST_F(SmallRun, PredictsItsLayoutInADryRun) {
  std::filesystem::create_directories(folder_.path() / "cache" / "tandem");
  std::vector<std::string> command = train({"--config", "small.yaml", "--dry-run"});
  command.insert(command.begin(),
                 {"/usr/bin/env", "XDG_CACHE_HOME=" + (folder_.path() / "cache").string()});
  EXPECT_THAT(
      start(command).out,
      HasSubstr("plan    no prediction: this machine was not measured yet: run build/bench"));
  std::filesystem::copy_file(TANDEM_SOURCE_DIR "/configs/hardware/epyc_2cpu.yaml",
                             folder_.path() / "cache" / "tandem" / "hardware.yaml");
  EXPECT_THAT(start(command).out,
              testing::ContainsRegex("plan    [0-9.]+ ms a step [(].. 25 %[)], [0-9.]+ ms of it "
                                     "exposed, [0-9.]+ k? *tokens/s: on AMD EPYC"));
  EXPECT_FALSE(folder_.has("runs"));
}

TEST_F(SmallRun, WritesALineForEachEvaluation) {
  start_small({"--set", "train.eval_every=2"});
  std::vector<int> steps;
  for (const std::string& text : lines_of(metrics())) {
    const json line = json::parse(text);
    if (line.contains("valid_loss")) {
      steps.push_back(line["step"]);
      EXPECT_FALSE(line.contains("loss"));
      EXPECT_NEAR(line["valid_loss"].get<double>(), std::log(32.0), 0.1);  // next to untrained
      EXPECT_GT(line["valid_tokens"], 1000);
    }
  }
  EXPECT_THAT(steps, testing::ElementsAre(2, 4, 5));
}

TEST_F(SmallRun, HasTheSameBitsAsProcessesUnderMpirunAndAsThreads) {
  start_small();
  start(under_mpirun(4, train({"--config", "small.yaml", "--set", "log.dir=mpi"})));
  EXPECT_THAT(losses(metrics()), testing::SizeIs(5));
  EXPECT_EQ(losses(metrics()), losses(metrics("mpi/small/metrics.jsonl")));
}

}  // namespace

}  // namespace tandem::test
