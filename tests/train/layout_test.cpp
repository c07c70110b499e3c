// The central claim: a layout trains what one rank trains.
#include <gtest/gtest.h>

#include <set>

#include "optim/schedule.h"
#include "tests/support/deferred_device.h"
#include "tests/train/training.h"

namespace tandem::test {
namespace {

struct Case {
  int tp, dp;
  std::int64_t accumulation;
  bool sequence_parallel = false;
};

std::vector<Case> grid() {
  std::vector<Case> cases;
  for (const int tp : {1, 2, 4}) {
    for (const int dp : {1, 2, 4}) {
      for (const std::int64_t accumulation : {1, 2, 4}) {
        if (tp * dp <= 8) {
          cases.push_back({tp, dp, accumulation});
        }
      }
    }
  }
  return cases;
}

std::string text(const Case& c) {
  return "tp " + std::to_string(c.tp) + " dp " + std::to_string(c.dp) + " accumulation " +
         std::to_string(c.accumulation) + (c.sequence_parallel ? " sequence parallel" : "");
}

Training run(const Case& c, const Config& base, int steps, const DeviceFactory& make_device) {
  Config config = with_layout(base, c.tp, c.dp, c.accumulation);
  config.parallel.sequence_parallel = c.sequence_parallel;
  return train(config, {.steps = steps, .make_device = make_device});
}

TEST(Layout, EveryLayoutAndAccumulationTrainsAsOneRankDoes) {  // B05, B08, B34, B43, B55, B108
  const Training one = run({1, 1, 1}, grid_config(), 20, one_thread_cpu);
  EXPECT_LT(one.steps.back().loss, 0.9 * one.steps.front().loss) << "it learns";
  for (const Case& c : grid()) {
    SCOPED_TRACE(text(c));
    expect_equal_training(run(c, grid_config(), 20, one_thread_cpu), one);
  }
}

// Gradients scaled by the number of all ranks or divided once more by the accumulation would be off
// by 2 or 4, and clipping would hide it in the loss.
TEST(Layout, EveryGradientIsThatOfOneRank) {  // B05, B08
  const Training one = run({1, 1, 1}, small_config(), 1, one_thread_cpu);
  for (const Case& c : {Case{1, 1, 4}, Case{2, 1, 1}, Case{1, 2, 1}, Case{2, 2, 1}, Case{4, 2, 1},
                        Case{2, 2, 2, true}}) {
    SCOPED_TRACE(text(c));
    const Training layout = run(c, small_config(), 1, one_thread_cpu);
    EXPECT_LT(worst_difference(layout.gradients, one.gradients),
              c.tp == 1 && c.dp == 1 ? 1e-6 : 1e-5);
  }
}

TEST(Layout, ReplicatedBiasesAndNormsStayOneThroughTraining) {  // B55, B64
  // Their copies are compared bit by bit after every step by train().
  const auto replicated = [](const Training& training) {
    WholeTensors vectors;
    for (const auto& [name, values] : training.weights) {
      if (name.ends_with("fc2.bias") || name.find("norm") != std::string::npos) {
        vectors[name] = values;
      }
    }
    EXPECT_EQ(vectors.size(), 2u * 3u + 2u);
    return vectors;
  };
  const WholeTensors one = replicated(run({1, 1, 1}, small_config(), 5, one_thread_cpu));
  EXPECT_LT(worst_difference(replicated(run({2, 1, 1}, small_config(), 5, one_thread_cpu)), one),
            1e-6);
  run({4, 1, 1, true}, small_config(), 10, one_thread_cpu);
}

TEST(Layout, TheScheduleCountsStepsAndNotMicroBatches) {  // B108
  const Config config = small_config();
  const Training t = run({1, 2, 4}, config, 2, one_thread_cpu);
  EXPECT_EQ(t.steps.back().lr, learning_rate(config.optim.schedule, config.optim.lr, 2));
}

TEST(Layout, HoldsOnADeviceWithAsynchronousStreams) {
  const Training one = run({1, 1, 1}, grid_config(), 20, one_thread_cpu);
  std::vector<Case> cases = grid();
  cases.insert(cases.end(), {{2, 2, 1, true}, {4, 1, 2, true}});
  for (const Case& c : cases) {
    SCOPED_TRACE(text(c));
    expect_equal_training(
        run(c, grid_config(), 20, [] { return testing::make_deferred_device(1, 7); }), one);
  }
}

TEST(Layout, HoldsWithSwigluRmsNormDropoutAndTokenShards) {  // B49, B61, B64, B88
  Config base = small_config();
  base.model.activation = Activation::kSwiglu;
  base.model.norm = NormKind::kRmsNorm;
  base.model.dropout = 0.2;
  base.model.vocab_size = 49;  // no tp divides it
  const Training one = run({1, 1, 1}, base, 10, one_thread_cpu);
  for (const Case& c : {Case{2, 1, 2}, Case{4, 1, 1}, Case{2, 2, 1, true}, Case{4, 2, 1, true},
                        Case{4, 1, 2, true}}) {
    SCOPED_TRACE(text(c));
    expect_equal_training(run(c, base, 10, one_thread_cpu), one);
  }
}

TEST(Layout, TheBareStackHoldsToo) {
  Config base = small_config();
  base.model.kind = ModelKind::kFfn;
  base.model.vocab_size = base.model.context = 0;
  const Training one = run({1, 1, 1}, base, 5, one_thread_cpu);
  for (const Case& c : {Case{2, 2, 2}, Case{4, 1, 1}, Case{2, 2, 1, true}, Case{4, 2, 1, true}}) {
    SCOPED_TRACE(text(c));
    expect_equal_training(run(c, base, 5, one_thread_cpu), one);
  }
}

/// ZeRO-1 under a layout.
Config sharded(Config config) {
  config.parallel.zero = 1;
  return config;
}

// Sums over the data ranks are made in the same order and the update is per element: bit by bit,
// but for the factor of clipping, whose norm is summed in other parts.
TEST(Zero, HasTheBitsOfTheSameLayoutWithout) {
  for (const PrecisionChoice precision : {PrecisionChoice::kFp32, PrecisionChoice::kBf16}) {
    for (const Case& c :
         {Case{1, 2, 1}, Case{1, 4, 2}, Case{2, 2, 2}, Case{2, 2, 1, true}, Case{1, 3, 1}}) {
      SCOPED_TRACE(text(c));
      Config base = small_config();
      base.precision = precision;
      base.model.vocab_size = 49;  // padded under tp, and no shard boundary falls between tensors
      base.train.global_batch = c.dp == 3 ? 6 : 8;
      base.train.clip_grad_norm = 0.0;
      base = with_layout(base, c.tp, c.dp, c.accumulation);
      base.parallel.sequence_parallel = c.sequence_parallel;
      const Training whole = train(base, {.steps = 4});
      const Training parts = train(sharded(base), {.steps = 4});
      EXPECT_EQ(parts.initial, whole.initial);
      EXPECT_EQ(parts.gradients, whole.gradients);
      EXPECT_EQ(parts.weights, whole.weights);
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(parts.steps[i].loss, whole.steps[i].loss);
        EXPECT_NEAR(parts.steps[i].grad_norm / whole.steps[i].grad_norm, 1.0, 1e-12);
      }
    }
  }
}

// Nobody waits for the gathered weights but the layers: a forward that does not computes with old
// ones.
TEST(Zero, HoldsOnADeviceWithAsynchronousStreams) {
  const Training one = run({1, 1, 1}, grid_config(), 20, one_thread_cpu);
  for (const Case& c : {Case{1, 2, 2}, Case{2, 2, 1}, Case{1, 4, 1}, Case{2, 4, 1, true}}) {
    SCOPED_TRACE(text(c));
    Config config = sharded(with_layout(grid_config(), c.tp, c.dp, c.accumulation));
    config.parallel.sequence_parallel = c.sequence_parallel;
    const Training layout =
        train(config, {.steps = 20,
                       .evaluate = true,
                       .make_device = [] { return testing::make_deferred_device(1, 11); },
                       .observe = false});
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_NEAR(layout.steps[i].loss / one.steps[i].loss, 1.0, i == 0 ? 1e-6 : 1e-4);
    }
  }
}

TEST(Zero, ReducesAndGathersEachBucketOnce) {
  const std::uint64_t buckets = 1 /* head */ + 2 /* blocks */ + 1 /* embedding */ + 1 /* vectors */;
  for (const std::int64_t accumulation : {1, 4}) {
    const Training training =
        train(sharded(with_layout(small_config(), 1, 2, accumulation)), {.steps = 2});
    EXPECT_EQ(training.collectives, std::vector<std::uint64_t>(2, 2 * buckets + 2));
  }
}

// B31: a bucket is split, or holds a whole block, and every bit is the same.
TEST(Buckets, TheirSizeChangesNoBit) {
  Config config = with_layout(small_config(), 2, 2, 2);
  config.model.hidden = 256;
  config.model.context = 64;  // an embedding of several MiB
  for (const int zero : {0, 1}) {
    config.parallel.zero = zero;
    config.parallel.bucket_mb = 256;
    const Training whole = train(config, {.steps = 2});
    config.parallel.bucket_mb = 1;
    const Training parts = train(config, {.steps = 2});
    EXPECT_GT(parts.collectives[0], whole.collectives[0]);
    EXPECT_EQ(parts.gradients, whole.gradients);
    if (zero == 0) {
      EXPECT_EQ(parts.weights, whole.weights);
    }
    // Nobody but the layers waits for the weights, of which one is in several buckets.
    const Training alone = train(config, {.steps = 2, .observe = false});
    EXPECT_EQ(alone.steps[1].loss, parts.steps[1].loss);
  }
}

TEST(Wire, GradientsAreRoundedOnceOnTheirWay) {
  Config config = with_layout(small_config(), 2, 2, 2);
  const Training exact = train(config, {.steps = 1});
  config.parallel.grad_dtype = GradientType::kBf16;
  for (const int zero : {0, 1}) {
    config.parallel.zero = zero;
    const Training rounded = train(config, {.steps = 1});
    // Each of two summands and their sum: half a unit of 2^-8 each at most.
    const double difference = worst_difference(rounded.gradients, exact.gradients);
    EXPECT_GT(difference, 1e-4);
    EXPECT_LT(difference, 3 * 0.5 / 256);
  }
}

TEST(Layout, BFloat16StaysWithinItsRounding) {
  Config base = small_config();
  base.precision = PrecisionChoice::kBf16;
  const Training one = run({1, 1, 1}, base, 5, one_thread_cpu);
  for (const Case& c : {Case{2, 2, 1}, Case{4, 2, 1, true}}) {
    const Training layout = run(c, base, 5, one_thread_cpu);
    EXPECT_EQ(layout.initial, one.initial);
    EXPECT_NEAR(layout.steps[0].loss / one.steps[0].loss, 1.0, 1e-3);
    EXPECT_NEAR(layout.steps[0].grad_norm / one.steps[0].grad_norm, 1.0, 1e-2);  // B61
    EXPECT_NEAR(layout.steps.back().loss / one.steps.back().loss, 1.0, 1e-2);
  }
}

TEST(Layout, Float16StaysWithinItsRounding) {
  Config base = small_config();
  base.precision = PrecisionChoice::kFp16;
  const Training one = run({1, 1, 1}, base, 5, one_thread_cpu);
  for (const Case& c : {Case{2, 2, 1}, Case{4, 2, 1, true}}) {
    const Training layout = run(c, base, 5, one_thread_cpu);
    EXPECT_EQ(layout.initial, one.initial);
    EXPECT_NEAR(layout.steps[0].loss / one.steps[0].loss, 1.0, 1e-4);
    EXPECT_NEAR(layout.steps[0].grad_norm / one.steps[0].grad_norm, 1.0, 1e-3);
    EXPECT_NEAR(layout.steps.back().loss / one.steps.back().loss, 1.0, 1e-3);
  }
}

TEST(Layout, TheSameSeedGivesTheSameBits) {  // B144
  const Config config = with_layout(small_config(), 2, 2, 2);
  const Training a = train(config, {.steps = 5});
  const Training b = train(config, {.steps = 5});
  EXPECT_EQ(a.weights, b.weights);
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm);
  }
  Config other = config;
  other.seed = 4321;
  EXPECT_NE(train(other, {.steps = 1}).steps[0].loss, a.steps[0].loss);
}

TEST(Layout, ThreadsPerRankChangeOnlyRounding) {  // B144
  Config config = small_config();
  // Large enough that kernels think their work worth splitting.
  config.model.hidden = 128;
  config.model.ffn = 256;
  config = with_layout(config, 2, 1, 1);
  const Training one = train(config, {.steps = 10});
  config.threads = 4;
  const Training four =
      train(config, {.steps = 10, .make_device = [] { return make_cpu_device(4); }});
  EXPECT_EQ(four.initial, one.initial);
  EXPECT_NE(four.steps[0].grad_norm, one.steps[0].grad_norm) << "no kernel used its threads";
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_NEAR(four.steps[i].loss / one.steps[i].loss, 1.0, 1e-5);
  }
}

TEST(Layout, EvaluationIsTheTokenMeanOfTheWholeHeldOutPart) {  // B42
  Config config = small_config();
  config.data.valid_fraction = 0.01;
  const Training one = train(with_layout(config, 1, 1, 1), {.steps = 1, .evaluate = true});
  EXPECT_GT(one.evaluation.tokens, 0);
  for (const auto& [tp, dp] : {std::pair{2, 1}, std::pair{1, 4}, std::pair{2, 2}}) {
    const Training layout = train(with_layout(config, tp, dp, 1), {.steps = 1, .evaluate = true});
    EXPECT_EQ(layout.evaluation.tokens, one.evaluation.tokens);
    EXPECT_NEAR(layout.evaluation.loss / one.evaluation.loss, 1.0, 1e-6);
  }
}

TEST(Layout, DroppingMaskedRowsOrKeepingThemIsTheSameStep) {
  for (const auto& [tp, dp] : {std::pair{1, 1}, std::pair{2, 2}}) {
    const Config config = with_layout(small_config(), tp, dp, 2);
    const Training dropped = train(config, {.steps = 3});
    const Training kept =
        train(config, {.steps = 3, .make_source = [](const auto& c, const auto& l) {
                         return make_data_source(c, l, {.keep_masked_rows = true});
                       }});
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(kept.steps[i].tokens, dropped.steps[i].tokens);
      EXPECT_NEAR(kept.steps[i].loss / dropped.steps[i].loss, 1.0, 1e-6);
    }
    EXPECT_LT(worst_difference(kept.gradients, dropped.gradients), 1e-4);
  }
}

TEST(Layout, OneGradientReductionPerBucketAndStepWhateverTheAccumulation) {
  // Without tensor parallelism a step's collectives are its buckets and two small agreements.
  const std::uint64_t buckets = 1 /* head */ + 2 /* blocks */ + 1 /* embedding */ + 1 /* vectors */;
  for (const std::int64_t accumulation : {1, 2, 4}) {
    const Training training = train(with_layout(small_config(), 1, 2, accumulation), {.steps = 2});
    EXPECT_EQ(training.collectives, std::vector<std::uint64_t>(2, buckets + 2));
  }
}

TEST(Layout, ABlockHasOneCollectiveEachWay) {
  constexpr std::uint64_t kLayers = 2;
  const std::uint64_t step = 2;  // token count; loss and gradient norm
  const std::uint64_t loss = 2;  // row maxima, row sums
  Config config = with_layout(small_config(), 2, 1, 1);
  // Embedding: g forward. Block: g forward, f backward. Head: f backward.
  EXPECT_EQ(train(config, {.steps = 1}).collectives[0], step + loss + 1 + 2 * kLayers + 1);
  config.parallel.sequence_parallel = true;
  // Embedding: scatter, gather. Block: gather, scatter; back gather, gather of fc1's input,
  // scatter. Head: gather, scatter. Then the partial gradients of what is replicated.
  EXPECT_EQ(train(config, {.steps = 1}).collectives[0], step + loss + 2 + 5 * kLayers + 2 + 1);
}

}  // namespace
}  // namespace tandem::test
