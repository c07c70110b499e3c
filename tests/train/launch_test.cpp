// What the real program says to a user who got something wrong: as one process whose ranks are
// threads, and under mpirun. Said once, with the right exit code, within seconds, and nothing is
// left: no run directory, no process, no memory taken.
#include <optional>

#include "tests/train/small_run.h"
#include "train/hosts.h"

namespace tandem::test {

namespace {

using testing::HasSubstr;
using testing::Not;

struct Mistake {
  std::string name;
  std::vector<std::string> arguments;
  int code = 2;
  std::vector<std::string> says;
  std::string more_yaml;  ///< appended to the small config
};

// MiB that a program may take which only refuses. A sanitizer keeps several bytes for each of it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kLittle = 4096.0;
#else
constexpr double kLittle = 1024.0;
#endif

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

void expect_refused(const Mistake& mistake, std::optional<int> ranks) {
  const ScratchFolder folder;
  folder.write("small.yaml", std::string(kSmall) + mistake.more_yaml);
  folder.write("empty.txt", "");
  folder.write("text.txt", "In the beginning\nwas the word\n");
  folder.write("a_file", "");
  std::filesystem::create_directory(folder.path() / "folder");
  std::vector<std::string> command = train(mistake.arguments);
  if (ranks) {
    command = under_mpirun(*ranks, command);
  }
  const Outcome outcome = run(command, folder);
  EXPECT_EQ(outcome.code, mistake.code) << outcome.err;
  EXPECT_EQ(count(outcome.err, "error:"), 1u) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("train: error: "));
  EXPECT_THAT(outcome.err, Not(HasSubstr("error: rank "))) << "all ranks know of it";
  for (const std::string& part : mistake.says) {
    EXPECT_EQ(count(outcome.err, part), 1u) << "'" << part << "' in\n" << outcome.err;
  }
  EXPECT_EQ(outcome.out.find("step"), std::string::npos) << outcome.out;
  EXPECT_FALSE(folder.has("runs"));
  expect_clean_end(outcome);
  EXPECT_LT(outcome.peak_mib, kLittle);
}

std::vector<std::string> with(const std::string& override) {
  return {"--config", "small.yaml", "--set", override};
}

class Refuses : public testing::TestWithParam<Mistake> {};

TEST_P(Refuses, Plainly) { expect_refused(GetParam(), std::nullopt); }
TEST_P(Refuses, UnderMpirun) { expect_refused(GetParam(), 4); }

INSTANTIATE_TEST_SUITE_P(
    Launch, Refuses,
    testing::Values(
        Mistake{"UnknownKey",
                {"--config", "small.yaml"},
                2,
                {"small.yaml:8:1", "optimm", "did you mean optim?"},
                "optimm: {lr: 0.1}\n"},
        Mistake{"DuplicateKey",
                {"--config", "small.yaml"},
                2,
                {"small.yaml:8:1: duplicate key name, first given on line 1"},
                "name: other\n"},
        Mistake{"WrongType", with("train.steps=many"), 2, {"train.steps = many", "not an integer"}},
        Mistake{"Tab",
                {"--config", "small.yaml"},
                2,
                {"small.yaml:9:1: a tab indents this line"},
                "optim:\n\tlr: 0.1\n"},
        Mistake{"IndivisibleFfn",
                with("model.ffn=33"),
                2,
                {"model.ffn = 33", "parallel.tp = 2", "write 32 or 34"}},
        Mistake{"IndivisibleBatch",
                with("train.global_batch=9"),
                2,
                {"train.global_batch = 9", "write 8 or 12"}},
        Mistake{"BadOverride",
                with("parallel.tp"),
                2,
                {"--set parallel.tp: write --set key.path=value"}},
        Mistake{"UnknownOption", {"--config", "small.yaml", "--frob"}, 2, {"--frob", "--help"}},
        Mistake{"NoConfig", {}, 2, {"--config is required"}},
        Mistake{"AbsentConfig", {"--config", "smal"}, 2, {"smal: no such config file"}},
        Mistake{"FolderAsConfig", {"--config", "folder"}, 2, {"folder: is a folder"}},
        Mistake{"NoSteps",
                {"--config", "small.yaml", "--steps", "0"},
                2,
                {"--steps: 0 is not a whole number"}},
        Mistake{"AbsentGpu", with("device=cuda"), 2, {"device: cuda", "device: cpu"}},
        Mistake{"LogDirIsAFile", with("log.dir=a_file"), 2, {"log.dir: a_file", "can be written"}},
        Mistake{"AbsentData",
                {"--config", "small.yaml", "--set", "data={format: text, path: no.txt}"},
                3,
                {"data.path: 'no.txt'", "No such file"}},
        Mistake{"EmptyData",
                {"--config", "small.yaml", "--set", "data={format: text, path: empty.txt}"},
                3,
                {"data.path: 'empty.txt' is empty"}},
        Mistake{"DataBeyondVocabulary",
                {"--config", "small.yaml", "--set", "data={format: text, path: text.txt}"},
                3,
                {"model.vocab_size: 32 is too small", "text.txt:2:1 (byte 17) is 119"}}),
    [](const auto& instance) { return instance.param.name; });

// The stack's own buffers and those of its data are both far beyond any memory: neither may be
// touched before the check.
const Mistake kTooLarge = {
    "TooLarge",
    {"--config", "small.yaml", "--set",
     "model={kind: ffn, vocab_size: null, context: null, hidden: 1000000000, ffn: 4, layers: 1}"},
    2,
    {"a rank needs", "weights ", "main grads ", "optimizer ", "activations ", "workspace ",
     "total ", "What would fit:", "model.hidden 1000000000"}};
const Mistake kTooLargeBatch = {
    "TooLargeBatch",
    {"--config", "small.yaml", "--set", "model.ffn=200000", "--set",
     "train={micro_batch: 131072, global_batch: 262144, steps: 1, eval_every: 0}"},
    2,
    {"a rank needs", "activations ", "What would fit: train.micro_batch: "}};

// Small in the arena, but with 3 TiB of generated rows for one step.
const Mistake kTooManyMicroBatches = {
    "TooManyMicroBatches",
    {"--config", "small.yaml", "--set",
     "model={kind: ffn, vocab_size: null, context: null, hidden: 65536, ffn: 4, layers: 1}",
     "--set", "train.global_batch=400000"},
    2,
    {"a rank needs", "data ", "What would fit: a smaller train.global_batch (now 400000)"}};

INSTANTIATE_TEST_SUITE_P(Memory, Refuses,
                         testing::Values(kTooLarge, kTooLargeBatch, kTooManyMicroBatches),
                         [](const auto& instance) { return instance.param.name; });

TEST(Launch, RefusesADryRunOfWhatDoesNotFit) {
  Mistake mistake = kTooLarge;
  mistake.arguments.push_back("--dry-run");
  expect_refused(mistake, std::nullopt);
}

TEST(Launch, PrintsTheWholeCorrectedLineForAnotherNumberOfRanksUnderMpirun) {
  expect_refused(
      {"WrongRanks",
       {"--config", "small.yaml", "--set", "optim.betas=[0.9, 0.99]"},
       2,
       {"2 ranks were started", "parallel.tp=2 x parallel.dp=2 has 4",
        "  mpirun -np 4 " TANDEM_TRAIN " --config small.yaml --set 'optim.betas=[0.9, 0.99]'\n"}},
      2);
}

TEST(Launch, WantsNoLauncherForRanksAsThreadsUnderMpirun) {
  expect_refused({"LocalUnderMpirun",
                  with("parallel.comm=local"),
                  2,
                  {"parallel.comm: local", "without mpirun:\n  " TANDEM_TRAIN " --config"}},
                 4);
}

TEST(Launch, WantsALauncherForMpi) {
  expect_refused({"MpiPlainly",
                  with("parallel.comm=mpi"),
                  2,
                  {"parallel.comm: mpi needs a launcher:\n  mpirun -np 4 " TANDEM_TRAIN
                   " --config small.yaml --set parallel.comm=mpi\n"}},
                 std::nullopt);
}

// As under srun with a PMI that the MPI library lacks: every process believes that it is alone.
TEST(Launch, TellsOnceOfALauncherThatMpiDoesNotKnowUnderMpirun) {
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  for (const int rank : {0, 1}) {
    const Outcome outcome = run({"/usr/bin/env", "PMI_SIZE=4", "PMI_RANK=" + std::to_string(rank),
                                 TANDEM_TRAIN, "--config", "small.yaml"},
                                folder);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(count(outcome.err, "the launcher started 4 ranks, but MPI made worlds of 1"),
              rank == 0 ? 1u : 0u)
        << outcome.err;
    EXPECT_FALSE(folder.has("runs"));
    expect_clean_end(outcome);
  }
}

// Each process reads its own file, which on another host may be another one.
TEST(Launch, RefusesAConfigOfItsOwnOnOneRankUnderMpirun) {  // B46
  for (const std::string seed : {"1", "1000"}) {
    const ScratchFolder folder;
    folder.write("small.yaml", kSmall);
    const std::string one = std::string(TANDEM_TRAIN) + " --config small.yaml --set seed=";
    const Outcome outcome = run(under_mpirun(4, {"sh", "-c",
                                                 "if [ $OMPI_COMM_WORLD_RANK = 2 ]; then exec " +
                                                     one + seed + "; fi; exec " + one + "7"}),
                                folder);
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    EXPECT_EQ(count(outcome.err, "error:"), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("rank 2 was started with another config: `seed: " + seed +
                                       "` where rank 0 has `seed: 7`"));
    EXPECT_FALSE(folder.has("runs"));
    expect_clean_end(outcome);
  }
}

TEST(Launch, TwentyShortRunsEndUnderMpirun) {  // B96, B104
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  for (int i = 0; i < 20; ++i) {
    const Outcome outcome =
        run(under_mpirun(4, train({"--config", "small.yaml", "--steps", "1"})), folder);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    expect_clean_end(outcome);
  }
}

TEST(Launch, WarnsOfMoreThreadsThanCpusAndTrainsTheSame) {  // B141
  const auto last_loss = [](int threads, std::size_t warnings) {
    const ScratchFolder folder;
    folder.write("small.yaml", kSmall);
    const Outcome outcome = run(train({"--config", "small.yaml", "--set", "parallel={tp: 1, dp: 1}",
                                       "--set", "threads=" + std::to_string(threads)}),
                                folder);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(count(outcome.out + outcome.err, "allowed CPU"), warnings) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(std::to_string(allowed_cpus()) + " allowed for rank 0"));
    const std::string metrics = folder.read("runs/small/metrics.jsonl");
    return std::stod(metrics.substr(metrics.rfind("\"loss\": ") + 8));
  };
  EXPECT_NEAR(last_loss(allowed_cpus() + 1, 1) / last_loss(1, 0), 1.0, 1e-5);
}

void expect_answer(const std::string& option, const std::string& says, bool mpirun) {
  const ScratchFolder folder;
  const auto command = train({option});
  const Outcome outcome = run(mpirun ? under_mpirun(2, command) : command, folder);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(count(outcome.out, says), 1u) << outcome.out;
  expect_clean_end(outcome);
}

TEST(Launch, HelpsOncePlainly) { expect_answer("--help", "--config FILE", false); }
TEST(Launch, HelpsOnceUnderMpirun) { expect_answer("--help", "--config FILE", true); }
TEST(Launch, TellsItsVersionOncePlainly) { expect_answer("--version", "tandem ", false); }
TEST(Launch, TellsItsVersionOnceUnderMpirun) { expect_answer("--version", "tandem ", true); }

}  // namespace

}  // namespace tandem::test
