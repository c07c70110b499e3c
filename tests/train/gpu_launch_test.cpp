// The real programs where a driver shows GPUs: driver and module are stand-ins that the loader
// finds, the device's memory is such that the host crashes when it touches it, and everything else
// is what runs on a machine with GPUs.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tests/train/small_run.h"

namespace tandem::test {

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

/// A host with `gpus` GPUs; the small config lies in its folder.
class GpuHost {
 public:
  explicit GpuHost(int gpus, const char* module = TANDEM_FAKE_MODULE) : gpus_(gpus) {
    const fs::path libraries = folder_.path() / "lib";
    fs::create_directory(libraries);
    fs::create_symlink(TANDEM_LIBRARY, libraries / "libtandem.so");
    fs::create_symlink(TANDEM_FAKE_DRIVER, libraries / "libcuda.so.1");
    if (module != nullptr) {
      fs::create_symlink(module, libraries / "libtandem_cuda.so");
    }
    folder_.write("small.yaml", kSmall);
  }

  std::vector<std::string> command(const std::string& program,
                                   const std::vector<std::string>& settings) const {
    std::vector<std::string> words = {"/usr/bin/env",
                                      "LD_LIBRARY_PATH=" + (folder_.path() / "lib").string(),
                                      "FAKE_GPUS=" + std::to_string(gpus_), program};
    if (program == TANDEM_BENCH) {
      words.emplace_back("step");
    }
    words.insert(words.end(), {"--config", "small.yaml"});
    for (const std::string& setting : settings) {
      words.insert(words.end(), {"--set", setting});
    }
    return words;
  }
  Outcome run(const std::vector<std::string>& command) const {
    const Outcome outcome = test::run(command, folder_);
    expect_clean_end(outcome);
    return outcome;
  }
  Outcome train(const std::vector<std::string>& settings) const {
    return run(command(TANDEM_TRAIN, settings));
  }
  /// The losses of the run "small".
  std::vector<double> losses() const {
    std::istringstream lines(folder_.read("runs/small/metrics.jsonl"));
    std::vector<double> values;
    for (std::string line; std::getline(lines, line);) {
      values.push_back(nlohmann::json::parse(line).at("loss").get<double>());
    }
    return values;
  }

 private:
  ScratchFolder folder_;
  int gpus_;
};

void expect_same_losses(const GpuHost& gpu) {
  const GpuHost other(1);
  ASSERT_EQ(other.train({"device=cpu"}).code, 0);
  const std::vector<double> expected = other.losses();
  const std::vector<double> actual = gpu.losses();
  ASSERT_EQ(expected.size(), 5u);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i] / expected[i], 1.0, 1e-6) << "step " << i + 1;
  }
}

TEST(GpuLaunch, AutoTakesTheGpuAndThreadsShareIt) {
  const GpuHost host(1);
  const Outcome outcome = host.train({});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("deferred cpu"), HasSubstr("which all 4 ranks share"),
                                 HasSubstr("measured on 1 GPU")));
  expect_same_losses(host);
}

TEST(GpuLaunch, AGpuForEachRankIsNccl) {
  const GpuHost host(4);
  const Outcome outcome = host.train({"device=cuda"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("NCCL"));
  expect_same_losses(host);
}

TEST(GpuLaunch, ProcessesStageUnderMpirun) {
  const GpuHost host(2);
  const Outcome outcome = host.run(under_mpirun(4, host.command(TANDEM_TRAIN, {"device=cuda"})));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("deferred cpu"), HasSubstr("staged through host")));
  expect_same_losses(host);
}

TEST(GpuLaunch, EveryLayerAndOptimizerKeepsTheHostOutOfTheDevice) {
  const GpuHost host(1);
  for (const std::string more :
       {"parallel.sequence_parallel=true", "precision=bf16", "optim.kind=sgd",
        "model={activation: swiglu, norm: rmsnorm, dropout: 0.2}", "train.eval_every=2",
        "model={kind: ffn, vocab_size: null, context: null}"}) {
    const Outcome outcome = host.train({"device=cuda", more});
    EXPECT_EQ(outcome.code, 0) << more << "\n" << outcome.err;
  }
}

TEST(GpuLaunch, VerifyAndBenchRunThereToo) {
  const GpuHost host(1);
  const Outcome verified = host.run(host.command(TANDEM_VERIFY, {"device=cuda"}));
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  const Outcome timed = host.run(host.command(
      TANDEM_BENCH, {"device=cuda", "model={kind: ffn, vocab_size: null, context: null}"}));
  EXPECT_EQ(timed.code, 0) << timed.err;
  EXPECT_THAT(timed.out, HasSubstr("deferred cpu"));
  std::vector<std::string> roofs = host.command(TANDEM_BENCH, {"device=cuda"});
  std::replace(roofs.begin(), roofs.end(), std::string("step"), std::string("gemm"));
  const Outcome measured = host.run(roofs);
  EXPECT_EQ(measured.code, 0) << measured.err;
  EXPECT_THAT(measured.out, AllOf(HasSubstr("deferred cpu"), HasSubstr("GB/s")));
}

TEST(GpuLaunch, HoldsTheModelAgainstTheMemoryOfTheGpuThatRanksShare) {
  const GpuHost host(1);
  const Outcome outcome = host.train({"device=cuda", "model.ffn=20000"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(count(outcome.err, "error:"), 1u) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("this GPU has 2.0 MiB for each of its 4 ranks"));
}

TEST(GpuLaunch, RefusesTwoRanksOnOneGpuUnderNccl) {
  const GpuHost host(2);
  const Outcome threads = host.train({"parallel.comm=nccl"});
  EXPECT_EQ(threads.code, 2);
  EXPECT_EQ(count(threads.err, "error:"), 1u) << threads.err;
  EXPECT_THAT(threads.err, AllOf(HasSubstr("ranks 0 and 2"), HasSubstr("parallel.comm: local")));
}

TEST(GpuLaunch, RefusesTwoRanksOnOneGpuUnderMpirun) {
  const GpuHost host(2);
  const Outcome outcome =
      host.run(under_mpirun(4, host.command(TANDEM_TRAIN, {"parallel.comm=nccl"})));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(count(outcome.err, "error:"), 1u) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("ranks 0 and 2"), HasSubstr("parallel.comm: mpi")));
}

TEST(GpuLaunch, RefusesAModuleOfAnotherVersion) {
  const GpuHost host(1, TANDEM_FAKE_OLD_MODULE);
  for (const char* device : {"device=cuda", "device=auto"}) {
    const Outcome outcome = host.train({device});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(count(outcome.err, "error:"), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("interface version"));
  }
  EXPECT_EQ(host.train({"device=cpu"}).code, 0) << "nobody looks for it";
}

/// `command` where the driver shows GPU `ordinal` but it cannot be used.
std::vector<std::string> with_unusable_gpu(std::vector<std::string> command, int ordinal) {
  command.insert(command.begin() + 1, "FAKE_GPU_FAILS=" + std::to_string(ordinal));
  return command;
}

TEST(GpuLaunch, AGpuThatCannotBeUsedIsAnErrorOfTheConfigThatWantsIt) {
  for (const char* wish : {"device=cuda", "parallel.comm=nccl"}) {
    const GpuHost host(4);
    const Outcome outcome = host.run(with_unusable_gpu(host.command(TANDEM_TRAIN, {wish}), 2));
    EXPECT_EQ(outcome.code, 2) << wish;
    EXPECT_EQ(count(outcome.err, "error:"), 1u) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("GPU 2 of "), HasSubstr("cannot be used: the driver is too old"),
                      HasSubstr("device: cpu")));
  }
}

void expect_to_do_without_gpus(const GpuHost& host, const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("deferred")));
  EXPECT_EQ(count(outcome.out + outcome.err, "no GPU is used: GPU 2 of "), 1u)
      << outcome.out << outcome.err;
  expect_same_losses(host);
}

TEST(GpuLaunch, AutoDoesWithoutGpusWhereOneCannotBeUsedAndSaysSoOnce) {
  const GpuHost host(4);
  expect_to_do_without_gpus(host, host.run(with_unusable_gpu(host.command(TANDEM_TRAIN, {}), 2)));
}

TEST(GpuLaunch, AutoDoesWithoutGpusUnderMpirunToo) {
  const GpuHost host(4);
  expect_to_do_without_gpus(
      host, host.run(under_mpirun(4, with_unusable_gpu(host.command(TANDEM_TRAIN, {}), 2))));
}

TEST(GpuLaunch, WithoutTheModuleAutoFallsBackAndSaysSo) {
  const GpuHost host(1, nullptr);
  const Outcome fallen = host.train({});
  EXPECT_EQ(fallen.code, 0) << fallen.err;
  EXPECT_THAT(fallen.out, Not(HasSubstr("deferred")));
  EXPECT_EQ(count(fallen.out + fallen.err, "no GPU is used: rank 0 on "), 1u) << fallen.err;
  EXPECT_THAT(fallen.out + fallen.err, HasSubstr("libtandem_cuda.so is not there"));
  const Outcome refused = host.train({"device=cuda"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("libtandem_cuda.so"), HasSubstr("-DTANDEM_CUDA=ON")));
}

/// What a run prints, by line: "starts", "ends", more where a rank was in a step, or a step's
/// number.
std::vector<std::string> capture_order(const std::string& out) {
  std::vector<std::string> order;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("capture ")) {
      order.push_back(line.substr(8));
    } else if (line.starts_with("step ")) {
      order.push_back(std::to_string(std::stoi(line.substr(5))));
    }
  }
  return order;
}

TEST(GpuLaunch, TheCaptureRangeCoversTheStepsOfTheConfig) {
  const GpuHost host(4);
  const Outcome outcome = host.train({"profile.steps=[2, 3]", "train.steps=5", "log.every=1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(capture_order(outcome.out), ElementsAre("1", "starts", "2", "3", "ends", "4", "5"))
      << "once for the threads of a process\n"
      << outcome.out;
}

TEST(GpuLaunch, TheCaptureRangeIsOneOfEachProcessUnderMpirun) {
  const GpuHost host(2);
  const Outcome outcome = host.run(
      under_mpirun(4, host.command(TANDEM_TRAIN, {"parallel.comm=mpi", "profile.steps=[2, 3]"})));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(count(outcome.out, "capture starts\n"), 4u) << outcome.out;
  EXPECT_EQ(count(outcome.out, "capture ends\n"), 4u) << outcome.out;
}

}  // namespace

}  // namespace tandem::test
