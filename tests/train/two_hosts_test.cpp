// The main job on two hosts, which are network namespaces of this machine with names of their own:
// started by mpirun over TCP, it computes what one process does; when one host disappears, the
// ranks do not wait for ever.
#include <cstdlib>
#include <thread>

#include "tests/train/small_run.h"

namespace tandem::test {

namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kScript = TANDEM_SOURCE_DIR "/tests/train/two_hosts.sh";

class TwoHosts : public testing::Test {
 protected:
  void SetUp() override {
    const Outcome outcome = run({kScript, "run", "/bin/true"}, folder_);
    if (outcome.code == 77) {
      GTEST_SKIP() << "NAMESPACES ARE NOT PERMITTED HERE: NOTHING WAS TESTED ON TWO HOSTS. "
                   << outcome.err;
    }
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    folder_.write("hostfile", "node1 slots=2\nnode2 slots=2\n");
    folder_.write("small.yaml", kSmall);
  }

  /// `command` as four ranks, two on each host, placed by `placement` (slot or node).
  static std::vector<std::string> on_both(const std::string& placement,
                                          const std::vector<std::string>& command,
                                          const std::vector<std::string>& options = {}) {
    std::vector<std::string> line = {kScript,
                                     "run",
                                     TANDEM_SOURCE_DIR "/scripts/mpirun.sh",
                                     "4",
                                     "--hostfile",
                                     "hostfile",
                                     "--map-by",
                                     placement,
                                     "--mca",
                                     "plm_rsh_agent",
                                     std::string(kScript) + " agent"};
    line.insert(line.end(), options.begin(), options.end());
    line.insert(line.end(), command.begin(), command.end());
    return line;
  }

  /// Loss and gradient norm of each step, as they are written.
  std::vector<std::string> steps_of(const std::string& name) const {
    std::vector<std::string> steps;
    const std::string metrics = folder_.read("runs/" + name + "/metrics.jsonl");
    for (std::size_t at = metrics.find("\"loss\""); at != std::string::npos;
         at = metrics.find("\"loss\"", at + 1)) {
      steps.push_back(metrics.substr(at, metrics.find(", \"lr\"", at) - at));
    }
    return steps;
  }

  ScratchFolder folder_;
};

TEST_F(TwoHosts, RunTheMainJobWithEachTensorParallelGroupOnOneHost) {
  const std::vector<std::string> job =
      train({"--config", TANDEM_SOURCE_DIR "/configs/ffn_tp2_dp2.yaml", "--steps", "2", "--set",
             "threads=1", "--set", "data={format: synthetic, path: null, seq_len: 32}", "--set",
             "train.eval_every=0"});
  const Outcome outcome = run(on_both("slot", job), folder_);
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("processes (mpi) on node1, node2"));
  EXPECT_EQ(count(outcome.err, "warning"), 0u) << outcome.err;
  expect_clean_end(outcome);
  const auto here = steps_of("ffn_tp2_dp2");
  std::filesystem::remove_all(folder_.path() / "runs");
  EXPECT_EQ(run(job, folder_).code, 0);
  EXPECT_EQ(here.size(), 2u);
  EXPECT_EQ(here, steps_of("ffn_tp2_dp2")) << "the bits of ranks as threads of one process";
}

TEST_F(TwoHosts, TrainTheSameAndWarnWhereTensorParallelGroupsSpanThem) {  // B143
  const std::vector<std::string> job = train({"--config", "small.yaml"});
  const Outcome outcome = run(on_both("node", job), folder_);
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(
      count(outcome.err, "2 of 2 tensor-parallel groups span hosts, the first {0,1} node1, node2"),
      1u)
      << outcome.err;
  expect_clean_end(outcome);
  const auto here = steps_of("small");
  std::filesystem::remove_all(folder_.path() / "runs");
  EXPECT_EQ(run(job, folder_).code, 0);
  EXPECT_EQ(here.size(), 5u);
  EXPECT_EQ(here, steps_of("small"));
}

/// A rank that leaves its exit code in a file: that of mpirun says nothing of ranks that it lost.
std::vector<std::string> leaving_its_code(const std::vector<std::string>& command) {
  std::vector<std::string> line = {
      "sh", "-c", "trap : TERM; \"$@\"; echo $? > code.$OMPI_COMM_WORLD_RANK", "sh"};
  line.insert(line.end(), command.begin(), command.end());
  return line;
}

/// Waits for `ready` on a busy machine.
bool wait_for(const std::function<bool()>& ready) {
  for (int i = 0; i < 4000 && !ready(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return ready();
}

// Data ranks are on different hosts: when the network between them is gone, each of the four waits
// for one that it cannot reach, and leaves by itself. mpirun, which would wait for its other half,
// is ended by the test.
TEST_F(TwoHosts, ThatLoseEachOtherEndEveryRankWithFourWithinTheTimeOut) {
  const std::vector<std::string> job =
      leaving_its_code(train({"--config", "small.yaml", "--steps", "1000000", "--set",
                              "parallel.timeout_s=4", "--set", "log.every=1"}));
  const auto meanwhile = [&](const Running& running) {
    EXPECT_TRUE(wait_for([&] { return count(running.out(), "step      3/") > 0; }));
    folder_.write("fail", "link");
    EXPECT_TRUE(wait_for([&] {
      bool all = true;
      for (int rank = 0; rank < 4; ++rank) {
        all = all && folder_.read("code." + std::to_string(rank)).ends_with('\n');
      }
      return all;
    }));
    kill(running.pid, SIGKILL);
  };
  const Outcome outcome = run(on_both("slot", job, {"--mca", "orte_abort_on_non_zero_status", "0"}),
                              folder_, {.meanwhile = meanwhile, .limit_s = 100.0});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(folder_.read("code." + std::to_string(rank)), "4\n") << "rank " << rank;
  }
  EXPECT_THAT(outcome.err,
              AllOf(ContainsRegex("error: step [0-9]+: rank [23] has"),
                    HasSubstr("no heartbeat for "), ContainsRegex(" waits? in (dp|control)#")));
  EXPECT_THAT(outcome.left_over, testing::IsEmpty());
}

// Its connections break at once; mpirun sees it first and ends the ranks that are left.
TEST_F(TwoHosts, OfWhichOneDiesEndTheJob) {
  const std::vector<std::string> job =
      train({"--config", "small.yaml", "--steps", "1000000", "--set", "log.every=1"});
  const auto meanwhile = [&](const Running& running) {
    EXPECT_TRUE(wait_for([&] { return count(running.out(), "step      3/") > 0; }));
    folder_.write("fail", "kill");
  };
  const Outcome outcome = run(on_both("slot", job), folder_, {.meanwhile = meanwhile});
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.out, Not(HasSubstr("trained small")));
  expect_clean_end(outcome);
}

}  // namespace

}  // namespace tandem::test
