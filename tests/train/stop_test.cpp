// How a run ends before its last step: by a signal, after the same step on all ranks; and by a rank
// that fails, whose peers say which.
#include <csignal>
#include <optional>
#include <thread>

#include "parallel/ledger.h"
#include "tests/support/ranks.h"
#include "tests/train/failing_source.h"
#include "tests/train/small_run.h"
#include "train/session.h"
#include "train/train_job.h"

namespace tandem::test {

namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Sends the signal when the run has taken some steps: to a rank that is a process of its own, or
/// to what was started.
std::function<void(const Running&)> send_when_running(int signal, std::optional<int> rank) {
  return [signal, rank](const Running& running) {
    for (int i = 0; i < 3000 && running.out().find("step      3/") == std::string::npos; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const pid_t target = rank ? running.rank(*rank) : running.pid;
    ASSERT_GT(target, 0);
    kill(target, signal);
  };
}

void expect_stopped(const std::vector<std::string>& command, int signal,
                    std::optional<int> rank = std::nullopt) {
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  const Outcome outcome = run(command, folder, {.meanwhile = send_when_running(signal, rank)});
  EXPECT_EQ(outcome.code, 128 + signal) << outcome.out.substr(0, 2000) << outcome.err;
  EXPECT_EQ(count(outcome.err, "error:"), 0u) << outcome.err;
  const std::size_t steps = count(folder.read("runs/small/metrics.jsonl"), "\n");
  EXPECT_GE(steps, 3u);
  EXPECT_EQ(count(outcome.out, "stopped by signal " + std::to_string(signal) + " after step " +
                                   std::to_string(steps) + "; the same command goes on"),
            1u);
  expect_clean_end(outcome);
}

const std::vector<std::string> kEndless = {"--config", "small.yaml", "--steps", "1000000"};

class StopsAtASignal : public testing::TestWithParam<int> {};

TEST_P(StopsAtASignal, Plainly) { expect_stopped(train(kEndless), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Stop, StopsAtASignal, testing::Values(SIGTERM, SIGINT, SIGUSR1, SIGUSR2),
                         testing::PrintToStringParamName());

// mpirun hands SIGUSR1 on; every rank leaves with 138 and mpirun takes it over.
TEST(Stop, StopsAtASignalToTheLauncherUnderMpirun) {
  expect_stopped(under_mpirun(4, train(kEndless)), SIGUSR1);
}

// The signal travels with the token count: where one rank alone has it, all stop after one step.
TEST(Stop, StopsAllRanksAtASignalToOneUnderMpirun) {
  expect_stopped(under_mpirun(4, train(kEndless)), SIGUSR2, 2);
}

// A program that has nothing to save leaves at once.
TEST(Stop, VerifyEndsAtASignal) {
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  const Outcome outcome =
      run({TANDEM_VERIFY, "--config", "small.yaml", "--steps", "1000000"}, folder,
          {.meanwhile = [](const Running& running) {
            for (int i = 0; i < 3000 && running.out().find("verify:") == std::string::npos; ++i) {
              std::this_thread::sleep_for(std::chrono::milliseconds(10));
            }
            kill(running.pid, SIGTERM);
          }});
  EXPECT_EQ(outcome.code, 128 + SIGTERM);
  expect_clean_end(outcome);
}

// Long enough to be met by the signal, and behind the last step, where no other step looks for one.
TEST(Stop, StopsInTheMiddleOfAnEvaluation) {
  expect_stopped(train({"--config", "small.yaml", "--steps", "3", "--set", "train.eval_every=3",
                        "--set", "train.micro_batch=1", "--set", "data.valid_fraction=0.99"}),
                 SIGUSR1);
}

// A killed rank says nothing; its launcher ends the others. That is no preemption.
TEST(Stop, EndsWithARankThatIsKilledUnderMpirun) {
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  const Outcome outcome =
      run(under_mpirun(4, train(kEndless)), folder, {.meanwhile = send_when_running(SIGKILL, 2)});
  EXPECT_EQ(outcome.code, 128 + SIGKILL) << outcome.err;
  EXPECT_EQ(count(outcome.out, "stopped by signal"), 0u);
  EXPECT_EQ(count(outcome.err, "error:"), 1u) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(": rank 2 died: its process is gone"));
  expect_clean_end(outcome);
}

// The first update makes the weights infinite; every later step is skipped, and says so.
TEST(Stop, EndsAfterTooManySkippedStepsOfWhichEachIsLogged) {  // B81
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  const Outcome outcome =
      run(train({"--config", "small.yaml", "--set", "train.max_skipped=3", "--set", "log.every=100",
                 "--set", "optim={lr: 1e38, schedule: {kind: constant, warmup_steps: 0}}"}),
          folder);
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_EQ(count(outcome.err, "error:"), 1u) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("step 4: loss or gradient norm is not finite, 3 steps in a row"));
  for (const int step : {2, 3, 4}) {
    EXPECT_EQ(count(outcome.out, "step      " + std::to_string(step) + "/5  skipped: "), 1u)
        << outcome.out;
  }
  expect_clean_end(outcome);
}

/// What a rank of a failing run threw.
struct Ending {
  bool threw_peer_lost = false;
  std::string text;
};

TEST(Stop, PeersOfAThreadThatThrowsNameItAndTheStep) {
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  const Config config =
      load_config({.file = (folder.path() / "small.yaml").string(),
                   .overrides = {"log.dir=" + (folder.path() / "runs").string()}});
  std::vector<Ending> endings(4);
  const auto thrown = run_local_world(4, {.timeout_s = 30}, [&](World& world) {
    const auto device = one_thread_cpu();
    Ledger ledger;
    const auto control = world.make_group("control", everyone(world), *device, &ledger, nullptr);
    const Logger log(world.rank());
    Session session(world, config, *control, ledger, log);
    TrainJob job(config, failing_source(config, session.rank().layout));
    try {
      job.run(session);
    } catch (const PeerLost& lost) {
      endings[static_cast<std::size_t>(world.rank())] = {true, lost.what()};
      throw;
    } catch (const std::exception& error) {
      endings[static_cast<std::size_t>(world.rank())] = {false, error.what()};
      throw;
    }
  });
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(thrown[rank]);
    EXPECT_EQ(endings[rank].threw_peer_lost, rank != 1) << endings[rank].text;
    if (rank != 1) {
      EXPECT_THAT(endings[rank].text, AllOf(HasSubstr("step 3"), HasSubstr("rank 1")));
    }
  }
  EXPECT_THAT(endings[1].text, HasSubstr("the disk is gone"));
  EXPECT_EQ(count(folder.read("runs/small/metrics.jsonl"), "\n"), 2u);
}

void expect_failure_told(const Outcome& outcome) {
  EXPECT_EQ(count(outcome.err, "train: error: rank 1: step 3: the disk is gone\n"), 1u)
      << outcome.err;
  EXPECT_EQ(count(outcome.err, "error:"), 1u) << outcome.err;
  expect_clean_end(outcome);
}

TEST(Stop, ExitsWithTheCodeOfTheThreadThatFailed) {
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  const Outcome outcome = run({TANDEM_FAILING_RANK, "--config", "small.yaml"}, folder);
  EXPECT_EQ(outcome.code, 6) << outcome.err;
  expect_failure_told(outcome);
}

TEST(Stop, ExitsWithSixAndPeersWithFourUnderMpirun) {
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  const Outcome outcome =
      run(under_mpirun(4, {TANDEM_FAILING_RANK, "--config", "small.yaml"}), folder);
  EXPECT_THAT(outcome.code, testing::AnyOf(4, 6)) << "that of the first to end" << outcome.err;
  expect_failure_told(outcome);
  EXPECT_EQ(folder.read("code.1"), "6");
  for (const int rank : {0, 2, 3}) {
    EXPECT_EQ(folder.read("code." + std::to_string(rank)), "4") << outcome.err;
  }
}

}  // namespace

}  // namespace tandem::test
