// A run that stops and goes on is the run that never stopped.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <map>
#include <sstream>
#include <thread>

#include "tests/train/small_run.h"

namespace tandem::test {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// step -> the text of what a step computed.
std::map<std::int64_t, std::string> steps_of(const std::string& metrics) {
  std::map<std::int64_t, std::string> steps;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const json step = json::parse(line);
    if (step.contains("loss")) {
      steps[step["step"]] =
          fmt::format("{} {} {} {} {}", step["loss"].dump(), step["grad_norm"].dump(),
                      step["lr"].dump(), step["tokens"].dump(), step["consumed_samples"].dump());
    }
  }
  return steps;
}

class Resume : public testing::Test {
 protected:
  // Dropout, a schedule, a second epoch: all that goes from step to step.
  Resume() {
    folder_.write("small.yaml",
                  std::string(kSmall) +
                      "optim: {schedule: {kind: cosine, warmup_steps: 3, decay_steps: "
                      "40, min_lr: 0}}\ncheckpoint: {every: 5}\n");
  }

  Outcome start(std::vector<std::string> arguments, int code = 0) {
    arguments.insert(arguments.begin(), {"--config", "small.yaml", "--set", "model.dropout=0.1"});
    const Outcome outcome = run(train(arguments), folder_);
    EXPECT_EQ(outcome.code, code) << outcome.out << outcome.err;
    expect_clean_end(outcome);
    return outcome;
  }
  std::map<std::int64_t, std::string> steps(const std::string& name) const {
    return steps_of(folder_.read("runs/" + name + "/metrics.jsonl"));
  }

  ScratchFolder folder_;
};

// B82, B50, B84, B85.
TEST_F(Resume, IsBitIdenticalUnderTheSameLayout) {
  start({"--set", "name=straight", "--steps", "12"});
  start({"--set", "name=parts", "--steps", "5"});
  const Outcome second = start({"--set", "name=parts", "--steps", "12"});
  EXPECT_THAT(second.out, HasSubstr("goes on behind step 5: runs/parts/checkpoints/step_00000005"));
  EXPECT_EQ(steps("parts"), steps("straight"));
  EXPECT_EQ(steps("parts").size(), 12u);
  const Outcome third = start({"--set", "name=parts", "--steps", "12"});
  EXPECT_THAT(third.out, HasSubstr("nothing to do"));
  EXPECT_EQ(folder_.read("runs/parts/checkpoints/latest"), "step_00000012\n");
}

TEST_F(Resume, GivesTheSameValuesUnderAnyOther) {
  start({"--set", "name=straight", "--steps", "8"});
  start({"--set", "name=first", "--steps", "5"});
  const auto straight = steps("straight");
  for (const std::string layout : {"tp=1 dp=1", "tp=4 dp=1", "tp=1 dp=4"}) {
    const std::string name = fmt::format("tp{}dp{}", layout[3], layout[8]);
    start({"--set", "name=" + name, "--set", "parallel.tp=" + layout.substr(3, 1), "--set",
           "parallel.dp=" + layout.substr(8, 1), "--set",
           fmt::format("parallel.sequence_parallel={}", layout[3] == '4'), "--set",
           "checkpoint.resume=runs/first", "--steps", "8"});
    const auto resumed = steps(name);
    ASSERT_EQ(resumed.size(), 3u);
    for (const auto& [step, text] : resumed) {
      EXPECT_NEAR(std::stod(text), std::stod(straight.at(step)), 1e-5) << layout;
    }
  }
}

// A stop saves, though no checkpoint was asked for, and the same command goes on.
TEST_F(Resume, GoesOnBehindASignal) {
  const std::vector<std::string> command =
      train({"--config", "small.yaml", "--set", "checkpoint.every=0", "--set", "name=stopped",
             "--steps", "1000000"});
  const Outcome outcome = run(
      command, folder_, {.meanwhile = [](const Running& running) {
        for (int i = 0; i < 3000 && running.out().find("step      3/") == std::string::npos; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        kill(running.pid, SIGUSR1);
      }});
  EXPECT_EQ(outcome.code, 128 + SIGUSR1) << outcome.err;
  const auto before = steps("stopped");
  const std::int64_t last = before.rbegin()->first;
  EXPECT_THAT(outcome.out, HasSubstr("the same command goes on from runs/stopped/checkpoints"));
  const std::string end = std::to_string(last + 3);
  const auto go = [&](const std::string& name) {
    const Outcome more = run(train({"--config", "small.yaml", "--set", "checkpoint.every=0",
                                    "--set", "name=" + name, "--steps", end}),
                             folder_);
    EXPECT_EQ(more.code, 0) << more.err;
  };
  go("stopped");
  go("whole");
  EXPECT_EQ(steps("stopped"), steps("whole"));
}

// A kill at any moment leaves a whole checkpoint, never older than the last one that was completed.
TEST_F(Resume, SurvivesAKillAtAnyMoment) {
  start({"--set", "name=straight", "--steps", "60", "--set", "checkpoint.every=0"});
  for (int i = 0; i < 6; ++i) {
    const Outcome killed = run(
        train({"--config", "small.yaml", "--set", "model.dropout=0.1", "--set", "name=killed",
               "--set", "checkpoint.every=1", "--steps", "60"}),
        folder_, {.meanwhile = [i](const Running& running) {
          for (int w = 0; w < 3000 && running.out().find("/60  loss") == std::string::npos; ++w) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(7 * i));
          kill(running.pid, SIGKILL);
        }});
    if (killed.code == 0) {
      break;  // it was through before the signal
    }
    EXPECT_EQ(killed.code, 128 + SIGKILL);
  }
  start({"--set", "name=killed", "--set", "checkpoint.every=1", "--steps", "60"});
  EXPECT_EQ(steps("killed"), steps("straight"));
}

TEST_F(Resume, ABrokenCheckpointEndsEveryRankInWords) {
  start({"--steps", "5"});
  const fs::path file =
      folder_.path() / "runs/small/checkpoints/step_00000005/rank_00002.safetensors";
  fs::resize_file(file, fs::file_size(file) - 4);
  const Outcome refused = start({"--steps", "8"}, 3);
  EXPECT_EQ(count(refused.err, "error:"), 1u) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("rank_00002.safetensors"), HasSubstr("cut off")));
  EXPECT_EQ(steps("small").size(), 5u) << "the metrics of the run are untouched";
}

TEST_F(Resume, ACheckpointOfAnotherModelIsRefused) {
  start({"--steps", "5"});
  const Outcome refused = start({"--steps", "8", "--set", "model.activation=relu"}, 3);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("another model"), HasSubstr("activation: gelu"),
                                 HasSubstr("activation: relu")));
}

// However its path is spelled, a checkpoint of the run's own goes on in place.
TEST_F(Resume, GoesBackToAnOlderCheckpointOfItsOwn) {
  start({"--steps", "10"});
  start({"--steps", "12", "--set",
         "checkpoint.resume=runs/../runs/small/checkpoints/step_00000005/"});
  EXPECT_EQ(steps("small").size(), 12u);
  EXPECT_EQ(folder_.read("runs/small/checkpoints/latest"), "step_00000012\n");
  // Even if the run publishes nothing: its metrics no longer go beyond that checkpoint.
  start({"--steps", "11", "--set", "checkpoint.every=0", "--set",
         "checkpoint.resume=runs/small/checkpoints/step_00000010"});
  EXPECT_EQ(folder_.read("runs/small/checkpoints/latest"), "step_00000010\n");
  EXPECT_FALSE(folder_.has("runs/small/checkpoints.1"));
  EXPECT_FALSE(folder_.has("runs/small/metrics.1.jsonl"));
}

TEST_F(Resume, NeverStartsAfreshAndKeepsWhatWasThere) {
  start({"--steps", "5"});
  start({"--steps", "6", "--set", "checkpoint.resume=never"});
  EXPECT_EQ(steps("small").size(), 6u);
  EXPECT_TRUE(folder_.has("runs/small/metrics.1.jsonl"));
  EXPECT_TRUE(folder_.has("runs/small/checkpoints.1/step_00000005"));
}

TEST_F(Resume, WeightsGoOutAndIn) {
  start({"--steps", "5"});
  const Outcome wrote = start({"--export", "weights.safetensors"});
  EXPECT_THAT(wrote.out, HasSubstr("wrote the weights of step 5"));
  const Outcome other = start({"--import", "weights.safetensors", "--set", "name=other", "--set",
                               "parallel.tp=4", "--set", "parallel.dp=1", "--steps", "2"});
  EXPECT_THAT(other.out, HasSubstr("weights of weights.safetensors"));
  const Outcome none = start({"--export", "w.safetensors", "--set", "name=none"}, 3);
  EXPECT_THAT(none.err, HasSubstr("has no checkpoint"));
  EXPECT_FALSE(folder_.has("w.safetensors"));
  const Outcome wrong =
      start({"--import", "small.yaml", "--set", "name=none", "--set", "parallel.tp=1"}, 3);
  EXPECT_THAT(wrong.err, HasSubstr("small.yaml: says its header has"));
  EXPECT_FALSE(folder_.has("runs/none"));
}

}  // namespace

}  // namespace tandem::test
