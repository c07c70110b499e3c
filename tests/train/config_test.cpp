#include "train/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

Config parse(std::string_view text, const std::vector<std::string>& overrides = {},
             std::optional<int> launched = {}) {
  return parse_config(text, {"run.yaml", overrides, launched});
}

/// The message of the ConfigError, "" if there is none.
std::string message(std::string_view text, const std::vector<std::string>& overrides = {},
                    std::optional<int> launched = {}) {
  try {
    parse(text, overrides, launched);
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    return e.what();
  }
  return "";
}

TEST(Config, EmptyFileGivesTheDefaultsNamedAfterTheFile) {
  Config defaults;
  defaults.name = "run";
  EXPECT_EQ(parse(""), defaults);
  EXPECT_EQ(parse("parallel:\nmodel: ~\nname: null\noptim: {lr: }\n"), defaults);
}

TEST(Config, ReadsEveryKind) {
  const Config c = parse(
      "name: x\nseed: 18446744073709551615\ndevice: reference\nprecision: bf16\nthreads: 3\n"
      "parallel: {tp: 2, sequence_parallel: yes, comm: local, timeout_s: 1.5}\n"
      "model: {activation: swiglu, norm: rmsnorm, bias: off}\n"
      "optim: {kind: sgd, betas: [0.8, 0], schedule: {kind: wsd, stable_steps: 5}}\n"
      "checkpoint: {resume: never}\n");
  EXPECT_EQ(c.seed, 18446744073709551615ULL);
  EXPECT_EQ(c.device, DeviceChoice::kReference);
  EXPECT_EQ(c.precision, PrecisionChoice::kBf16);
  EXPECT_EQ(c.threads, 3);
  EXPECT_EQ(c.parallel.tp, 2);
  EXPECT_TRUE(c.parallel.sequence_parallel);
  EXPECT_EQ(c.parallel.comm, CommChoice::kLocal);
  EXPECT_EQ(c.parallel.timeout_s, 1.5);
  EXPECT_EQ(c.model.activation, Activation::kSwiglu);
  EXPECT_EQ(c.model.norm, NormKind::kRmsNorm);
  EXPECT_FALSE(c.model.bias);
  EXPECT_EQ(c.optim.kind, OptimizerKind::kSgd);
  EXPECT_EQ(c.optim.betas[0], 0.8);
  EXPECT_EQ(c.optim.betas[1], 0.0);
  EXPECT_EQ(c.optim.schedule.kind, ScheduleKind::kWsd);
  EXPECT_EQ(c.checkpoint.resume, "never");
}

TEST(Config, BadValueNamesFileLineColumnKeyValueAndRemedy) {
  EXPECT_EQ(message("model:\n  hidden: abc\n"),
            "run.yaml:2:11: model.hidden = abc: not an integer: write an integer >= 1");
  EXPECT_EQ(message("train: {micro_batch: 2.5}"),
            "run.yaml:1:22: train.micro_batch = 2.5: not an integer: write an integer >= 1");
  EXPECT_EQ(message("optim: {lr: abc}"),
            "run.yaml:1:13: optim.lr = abc: not a finite decimal number: write a number > 0");
  // B131
  EXPECT_EQ(
      message("parallel:\n  sequence_parallel: \"false\"\n"),
      "run.yaml:2:22: parallel.sequence_parallel = \"false\": quotes make it text: write true "
      "or false without quotes");
  EXPECT_EQ(message("precision: fp23"),
            "run.yaml:1:12: precision = fp23: unknown: write one of fp32 | bf16 | fp16");
  EXPECT_EQ(message("parallel: 2"),
            "run.yaml:1:11: parallel = 2: it is a map of keys: write parallel: {key: value, ...}");
  EXPECT_THAT(message("abc"), StartsWith("run.yaml:1:1: a config is a map of keys"));
}

struct BadValue {
  const char* key;
  const char* value;
};

// B28, B68, B69 and their kind: every number has a range.
TEST(Config, OutOfRangeValuesAreRefused) {
  const BadValue cases[] = {
      {"seed", "-1"},
      {"threads", "0"},
      {"threads", "-2"},
      {"parallel.tp", "0"},
      {"parallel.tp", "-1"},
      {"parallel.dp", "0"},
      {"parallel.tp", "32769"},
      {"parallel.timeout_s", "0"},
      {"model.vocab_size", "0"},
      {"model.context", "0"},
      {"model.hidden", "0"},
      {"model.ffn", "0"},
      {"model.layers", "0"},
      {"model.layers", "4294967296"},
      {"model.norm_eps", "0"},
      {"model.dropout", "-0.1"},
      {"model.dropout", "0.999"},
      {"data.seq_len", "0"},
      {"data.valid_fraction", "1"},
      {"data.valid_fraction", "-0.1"},
      {"train.steps", "0"},
      {"train.micro_batch", "0"},
      {"train.global_batch", "0"},
      {"train.clip_grad_norm", "-1"},
      {"train.eval_every", "-1"},
      {"train.max_skipped", "0"},
      {"optim.lr", "0"},
      {"optim.lr", "-1"},
      {"optim.eps", "0"},
      {"optim.weight_decay", "-0.1"},
      {"optim.momentum", "1"},
      {"optim.betas", "[0.9, 1]"},
      {"optim.betas", "[-0.1, 0.9]"},
      {"optim.schedule.warmup_steps", "-1"},
      {"optim.schedule.min_lr", "-1"},
      {"checkpoint.keep", "0"},
      {"log.every", "0"},
  };
  for (const auto& [key, value] : cases) {
    const std::string text = message("", {std::string(key) + "=" + value});
    EXPECT_THAT(text, AllOf(StartsWith("--set " + std::string(key) + "="),
                            HasSubstr("out of range"), HasSubstr(": write")))
        << key << " " << value;
  }
}

TEST(Config, WrongTypesAreRefused) {
  const BadValue cases[] = {
      {"optim.betas", "0.9"},
      {"optim.betas", "[0.9]"},
      {"optim.betas", "[0.9, 0.9, 0.9]"},
      {"optim.betas", "[0.9, abc]"},
      {"name", "[a]"},
      {"model.hidden", "[1]"},
      {"model.bias", "1"},
      {"data.path", "{a: 1}"},
      {"data.path", "''"},
      {"log.dir", "\"\""},
      {"name", "a/b"},
      {"name", ".."},
      {"name", "\"\""},
      {"model.hidden", "{a: 1}"},
      {"model.activation", "tanh"},
      {"threads", "many"},
  };
  for (const auto& [key, value] : cases) {
    EXPECT_THAT(message("", {std::string(key) + "=" + value}), HasSubstr(": " + std::string(key)))
        << key << " " << value;
  }
}

TEST(Config, GpusAreNotLookedForBeforeRanksAreThere) {
  EXPECT_EQ(message("device: cuda\nparallel: {comm: nccl}\n"), "");
}

// B126
TEST(Config, DuplicateKeysNameBothLines) {
  EXPECT_THAT(message("train:\n  steps: 1\n  steps: 2\n"),
              AllOf(StartsWith("run.yaml:3:3: "), HasSubstr("steps"), HasSubstr("line 2")));
}

struct Unknown {
  const char* text;
  const char* path;
  const char* remedy;
};

// B127
TEST(Config, UnknownKeysNameTheNearestOne) {
  const Unknown cases[] = {
      {"optimm: {lr: 1}", "optimm", "did you mean optim?"},
      {"optim: {lrr: 1}", "optim.lrr", "did you mean optim.lr?"},
      {"optim: {weigth_decay: 0.1}", "optim.weigth_decay", "did you mean optim.weight_decay?"},
      {"train: {weigth_decay: 0.1}", "train.weigth_decay", "did you mean optim.weight_decay?"},
      {"optim: {schedule: {knd: wsd}}", "optim.schedule.knd", "did you mean optim.schedule.kind?"},
      {"nmae: x", "nmae", "did you mean name?"},  // a swap is one slip
      // Misplaced: the right section.
      {"tp: 2", "tp", "did you mean parallel.tp?"},
      {"model: {tp: 2}", "model.tp", "did you mean parallel.tp?"},
      {"optim: {warmup_steps: 2}", "optim.warmup_steps",
       "did you mean optim.schedule.warmup_steps?"},
      {"every: 2", "every", "did you mean checkpoint.every or log.every?"},
      {"schedule: {kind: wsd}", "schedule", "did you mean optim.schedule?"},
      // Known from elsewhere.
      {"tensor_model_parallel_size: 2", "tensor_model_parallel_size", "parallel.tp?"},
      {"tensor_parallel_degree: 2", "tensor_parallel_degree", "parallel.tp?"},
      {"train: {micro-batch-size: 2}", "train.micro-batch-size", "train.micro_batch?"},
      {"--hidden-size: 2", "--hidden-size", "model.hidden?"},
      {"learning_rate: 2", "learning_rate", "optim.lr?"},
      {"max_steps: 2", "max_steps", "train.steps?"},
      {"train_steps: 5", "train_steps", "train.steps?"},
      {"optim: {clip_grad: 1}", "optim.clip_grad", "train.clip_grad_norm?"},
      {"max_grad_norm: 1", "max_grad_norm", "train.clip_grad_norm?"},
      {"seq_length: 1", "seq_length", "data.seq_len?"},
      {"min_decay_lr: 1", "min_decay_lr", "optim.schedule.min_lr?"},
      {"gradient_accumulation_steps: 4", "gradient_accumulation_steps",
       "accumulation is train.global_batch / (train.micro_batch * parallel.dp)"},
      {"optimizer: {lr: 1}", "optimizer", "did you mean optim?"},
      {"checkpoint: {load: }", "checkpoint.load", "checkpoint.resume?"},  // B133
      // Written as they are in other places.
      {"parallel.tp: 2", "parallel.tp", "write parallel: {tp: ...}"},
      {"optim.schedule.kind: wsd", "optim.schedule.kind", "write optim: {schedule: {kind: ...}}"},
      {"parallel: {tp:2}", "parallel.tp:2", "put a space after the colon: tp: 2"},
      // Nothing like it: what there is. B20, B116, B118: an absent feature is an unknown key.
      {"log: {zzzzzz: 1}", "log.zzzzzz", "the keys of log are every, dir, tensorboard"},
      {"qqqqqqqq: 1", "qqqqqqqq", "the keys are name, seed, device"},
      {"train: {label_smoothing: 0.1}", "train.label_smoothing", "the keys of train are steps"},
      {"model: {tie_embeddings: true}", "model.tie_embeddings", "the keys of model are kind"},
  };
  for (const auto& [text, path, remedy] : cases) {
    EXPECT_THAT(message(text),
                AllOf(StartsWith("run.yaml:1:"),
                      HasSubstr(": unknown key " + std::string(path) + ": "), HasSubstr(remedy)));
  }
  EXPECT_THAT(message(std::string(1000, 'k') + ": 1\n"), HasSubstr("the keys are"));
}

TEST(ConfigOverride, SetsKeysAndMapsAndTheLastOneWins) {
  const Config c = parse("model: {hidden: 8, ffn: 8}\noptim: {schedule: {warmup_steps: 7}}\n",
                         {"model.hidden=16", "optim.schedule={kind: constant, decay_steps: 0}",
                          "model.hidden=32", "optim.lr= 1e-4", "name=no", "optim={eps: 1e-6}"});
  EXPECT_EQ(c.model.hidden, 32);
  EXPECT_EQ(c.model.ffn, 8);
  EXPECT_EQ(c.optim.schedule.kind, ScheduleKind::kConstant);
  EXPECT_EQ(c.optim.schedule.decay_steps, 0);
  EXPECT_EQ(c.optim.schedule.warmup_steps, 7);
  EXPECT_EQ(c.optim.lr, 1e-4);
  EXPECT_EQ(c.optim.eps, 1e-6);
  EXPECT_EQ(c.name, "no");
}

TEST(ConfigOverride, NullTakesASettingBack) {
  const Config c = parse("name: x\nmodel: {hidden: 8}\noptim: {lr: 2, schedule: {kind: wsd}}\n",
                         {"name=", "model.hidden=null", "optim=~"});
  EXPECT_EQ(c, parse(""));
}

TEST(ConfigOverride, MessagesNameTheArgument) {
  EXPECT_EQ(message("", {"optim.lrr=1"}),
            "--set optim.lrr=1: unknown key optim.lrr: did you mean optim.lr?");
  EXPECT_EQ(message("", {"model.hidden=abc"}),
            "--set model.hidden=abc: model.hidden = abc: not an integer: write an integer >= 1");
  EXPECT_THAT(message("", {"optim.schedule={kindd: wsd}"}),
              AllOf(StartsWith("--set optim.schedule={kindd: wsd}: unknown key"),
                    HasSubstr("optim.schedule.kindd")));
  EXPECT_THAT(message("", {"optim.lr=[1"}), StartsWith("--set optim.lr=[1: "));
  EXPECT_THAT(message("", {"parallel.tp"}), HasSubstr("write --set key.path=value"));
  EXPECT_THAT(message("", {"=2"}), HasSubstr("write --set key.path=value"));
  EXPECT_THAT(message("", {"model.ffn=1023", "parallel.tp=2"}),
              StartsWith("--set model.ffn=1023: "));
}

TEST(ConfigSizes, FfnMustDivideByTp) {
  EXPECT_EQ(message("model:\n  ffn: 1023\nparallel: {tp: 2}\n"),
            "run.yaml:2:8: model.ffn = 1023: not divisible by parallel.tp = 2 (remainder 1): write "
            "1022 or 1024");
  EXPECT_EQ(message("parallel: {tp: 3}\n"),
            "run.yaml: model.ffn = 1024 (the default): not divisible by parallel.tp = 3 (remainder "
            "1): write 1023 or 1026");
  EXPECT_THAT(message("model: {ffn: 2}\nparallel: {tp: 4}\n"), HasSubstr("write 4"));
}

// B66
TEST(ConfigSizes, VocabularyNeedNotDivide) {
  EXPECT_EQ(message("model: {vocab_size: 250682}\nparallel: {tp: 8}\n"), "");
}

// B68
TEST(ConfigSizes, DataRanksFollowFromTheLaunch) {
  EXPECT_THAT(message("parallel: {tp: 4}", {}, 6),
              AllOf(StartsWith("run.yaml:1:16: parallel.tp = 4: "), HasSubstr("world 6, tp 4"),
                    HasSubstr("1, 2, 3, 6")));
  EXPECT_EQ(parse("parallel: {tp: 2}", {}, 8).parallel.dp, 4);
  EXPECT_EQ(parse("parallel: {tp: 2, dp: null}", {}, 8).parallel.dp, 4);
  EXPECT_EQ(parse("parallel: {tp: 2}").parallel.dp, 1);
  EXPECT_EQ(parse("parallel: {tp: 2, dp: 2}", {}, 8).parallel.dp, 2);
}

// B69
TEST(ConfigSizes, GlobalBatchIsAMultipleOfWhatOneMicroBatchOfAllRanksHolds) {
  const std::string two = "parallel: {dp: 2}\ntrain: {micro_batch: 2, global_batch: ";
  EXPECT_EQ(message(two + "10}"),
            "run.yaml:2:39: train.global_batch = 10: not divisible by train.micro_batch * "
            "parallel.dp = 2 * 2 = 4 (remainder 2): write 8 or 12");
  EXPECT_EQ(parse(two + "12}").accumulation(), 3);
  EXPECT_THAT(message(two + "2}"), HasSubstr("write 4"));
}

// B70
TEST(ConfigSizes, SequenceParallelCutsTheSequence) {
  const std::string text = "parallel: {tp: 4, sequence_parallel: true}\ndata: {seq_len: ";
  EXPECT_THAT(message(text + "6}"), AllOf(StartsWith("run.yaml:2:17: data.seq_len = 6: "),
                                          HasSubstr("parallel.tp = 4"), HasSubstr("write 4 or 8")));
  EXPECT_EQ(message(text + "8}"), "");
  EXPECT_EQ(message("parallel: {tp: 4}\ndata: {seq_len: 6}"), "");
}

TEST(ConfigSizes, WhatNoMachineCanCountIsRefused) {
  EXPECT_THAT(message("", {"model={hidden: 2147483647, ffn: 2147483647, layers: 2147483647}"}),
              HasSubstr("parameters"));
  EXPECT_THAT(
      message("", {"train={micro_batch: 1000000, global_batch: 1000000}", "data.seq_len=1000000"}),
      AllOf(HasSubstr("train.micro_batch = 1000000"), HasSubstr("at most 2147")));
}

// B107
TEST(ConfigSchedule, DecayEndsAfterWarmupAndStableSteps) {
  const std::string wsd =
      "optim: {schedule: {kind: wsd, warmup_steps: 4, stable_steps: 2, decay_steps: ";
  EXPECT_THAT(message(wsd + "6}}"),
              AllOf(HasSubstr("optim.schedule.decay_steps = 6"), HasSubstr("more than 6, or 0")));
  EXPECT_EQ(message(wsd + "7}}"), "");
  EXPECT_EQ(message(wsd + "0}}"), "");
  EXPECT_THAT(message("", {"optim.schedule.warmup_steps=200"}), HasSubstr("decay_steps = 200"));
  EXPECT_EQ(message("", {"optim.schedule.warmup_steps=0"}), "");
}

TEST(ConfigSchedule, StableStepsAndARisingEndAreRefused) {
  EXPECT_THAT(message("", {"optim.schedule.stable_steps=2"}), HasSubstr("wsd"));
  EXPECT_THAT(message("", {"optim.lr=1e-5"}),
              AllOf(HasSubstr("optim.schedule.min_lr = 1e-04 (the default)"), HasSubstr("optim.lr"),
                    HasSubstr("write at most 1e-05")));
  EXPECT_EQ(message("", {"optim.lr=1e-5", "optim.schedule={kind: constant}"}), "");
  EXPECT_EQ(message("", {"optim.lr=1e-5", "optim.schedule={decay_steps: 0}"}), "");
}

TEST(ConfigFfn, TakesGeneratedDataAndRefusesWhatItHasNot) {
  const std::string ffn = "model:\n  kind: ffn\ndata:\n  format: synthetic\n";
  EXPECT_EQ(parse(ffn).train.eval_every, 0);
  EXPECT_EQ(parse(ffn + "train: {eval_every: 0}").train.eval_every, 0);
  EXPECT_THAT(message(ffn + "train: {eval_every: 5}"), HasSubstr("train.eval_every = 5"));
  EXPECT_THAT(message("model: {kind: ffn}"), HasSubstr("data.format = text (the default)"));
  const BadValue idle[] = {{"model.vocab_size", "256"},
                           {"model.context", "16"},
                           {"data.documents", "padded"},
                           {"data.valid_fraction", "0.05"},
                           {"data.path", "x.txt"}};
  for (const auto& [key, value] : idle) {
    EXPECT_THAT(message(ffn, {std::string(key) + "=" + value}),
                AllOf(HasSubstr(std::string(key) + " = " + value), HasSubstr("leave it out")));
    EXPECT_EQ(message(ffn, {std::string(key) + "=" + value, std::string(key) + "=null"}), "");
  }
  EXPECT_THAT(message("model: {context: 4}", {"model.kind=ffn", "data.format=synthetic"}),
              AllOf(StartsWith("run.yaml:1:18: "), HasSubstr("--set model.context=null")));
}

TEST(ConfigData, SyntheticHasDocumentsButNoPath) {
  EXPECT_EQ(message("data: {format: synthetic, documents: packed}"), "");
  EXPECT_EQ(message("data: {format: synthetic, documents: padded}"), "");
  EXPECT_THAT(message("data: {format: synthetic, path: x}"), HasSubstr("data.path = x"));
}

TEST(ConfigData, NothingHeldOutMeansNoEvaluation) {
  EXPECT_EQ(parse("data: {valid_fraction: 0}").train.eval_every, 0);
  EXPECT_THAT(message("data: {valid_fraction: 0}\ntrain: {eval_every: 5}"),
              AllOf(StartsWith("run.yaml:2:21: "), HasSubstr("data.valid_fraction")));
}

// --- Writing ---

/// Every key with a value that is not its default.
constexpr const char* kAllChanged =
    "name: \"a: b\"\nseed: 7\ndevice: cpu\nprecision: bf16\nthreads: 2\n"
    "parallel: {tp: 2, dp: 3, sequence_parallel: true, zero: 1, bucket_mb: 3,\n"
    "  grad_dtype: bf16, comm: mpi, timeout_s: 0.1}\n"
    "model: {kind: mlp_lm, vocab_size: 300, context: 3, hidden: 12, ffn: 20, layers: 2,\n"
    "  activation: relu, norm: rmsnorm, norm_eps: 1.1e-7, bias: false, dropout: "
    "0.3333333333333333}\n"
    "data: {path: \"x#y z.txt\", seq_len: 10, documents: packed, shuffle: false, valid_fraction: "
    "0.2}\n"
    "train: {steps: 9, micro_batch: 2, global_batch: 12, clip_grad_norm: 0, eval_every: 3, "
    "max_skipped: 4}\n"
    "optim: {kind: sgd, lr: 0.3, betas: [0.1, 0.7], eps: 1e-12, weight_decay: 0, momentum: 0.5,\n"
    "  schedule: {kind: wsd, warmup_steps: 1, stable_steps: 2, decay_steps: 8, min_lr: 0}}\n"
    "checkpoint: {every: 7, keep: 5, resume: runs/other}\nlog: {every: 3, dir: out/dir, "
    "tensorboard: true}\nprofile: "
    "{nvtx: false, trace: true, "
    "steps: [3, 4]}\n"
    "cuda: {tf32: true}\n";

TEST(ConfigText, ReadsBackToTheSameConfig) {
  for (const char* text : {"", kAllChanged, "model: {kind: ffn}\ndata: {format: synthetic}\n",
                           "data: {format: synthetic}\n"}) {
    const Config config = parse(text);
    const std::string written = to_yaml(config);
    EXPECT_EQ(parse_config(written, {"config.yaml", {}, 64}), config) << written;
    EXPECT_EQ(to_yaml(parse(written)), written);
  }
}

TEST(ConfigText, NoValueOfTheChangedConfigIsADefault) {
  // Keys with one legal value so far, or whose other values exclude keys.
  const std::vector<std::string> fixed = {"model.kind", "data.format"};
  const std::string written = to_yaml(parse(kAllChanged));
  const std::string defaults = to_yaml(parse(""));
  std::size_t same = 0;
  std::istringstream a(written);
  std::istringstream b(defaults);
  for (std::string x, y; std::getline(a, x) && std::getline(b, y);) {
    if (x == y && x.back() != ':') ++same;
  }
  EXPECT_EQ(same, fixed.size()) << written;
}

// --- Files ---

/// A folder of its own as working directory.
class ConfigFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "config_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    before_ = fs::current_path();
    fs::create_directories(folder_ / "configs");
    fs::current_path(folder_);
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string load_message(const std::string& file) {
    try {
      load_config({file, {}, {}});
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  }

  fs::path folder_;
  fs::path before_;
};

TEST_F(ConfigFile, BareNamesAreSoughtInConfigsToo) {
  write("configs/small.yaml", "seed: 1");
  EXPECT_EQ(load_config({"small", {}, {}}).seed, 1U);
  EXPECT_EQ(load_config({"small.yaml", {}, {}}).seed, 1U);
  EXPECT_EQ(load_config({"small", {}, {}}).name, "small");
  write("small.yaml", "seed: 2");
  EXPECT_EQ(load_config({"small.yaml", {}, {}}).seed, 2U);
  EXPECT_EQ(load_config({"./small.yaml", {}, {}}).seed, 2U);
}

TEST_F(ConfigFile, MissingFileNamesThePlacesAndTheNearestName) {
  EXPECT_EQ(load_message("nope.yaml"),
            "nope.yaml: no such config file (sought nope.yaml, configs/nope.yaml)");
  write("configs/small.yaml", "");
  EXPECT_EQ(load_message("smal"),
            "smal: no such config file (sought smal, configs/smal, smal.yaml, configs/smal.yaml); "
            "did you mean configs/small.yaml?");
  EXPECT_EQ(load_message("configs/smll.yaml"),
            "configs/smll.yaml: no such config file (sought configs/smll.yaml); did you mean "
            "configs/small.yaml?");
  EXPECT_THAT(load_message("configs"), HasSubstr("is a folder: name a config file"));
  EXPECT_THAT(load_message(""), HasSubstr("--config FILE"));
}

TEST_F(ConfigFile, MessagesNameTheFileThatWasFound) {
  write("configs/small.yaml", "model:\n\thidden: 1\n");
  EXPECT_THAT(load_message("small"),
              AllOf(StartsWith("configs/small.yaml:2:1: "), HasSubstr("tab")));  // B129
}

TEST_F(ConfigFile, EveryMessageIsOneLine) {
  write("a.yaml", "optimm: {lr: 1}");
  EXPECT_EQ(load_message("a.yaml").find('\n'), std::string::npos);
}

}  // namespace
}  // namespace tandem
