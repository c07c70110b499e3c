// A step whose loss or gradient is not finite changes nothing on any rank, is counted, and does not
// move the schedule; too many in a row end the run on every rank alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "optim/schedule.h"
#include "tests/train/training.h"

namespace tandem::test {
namespace {

/// Finite rows, but NaN on data rank 1 in the steps that are named.
class PoisonedSource final : public DataSource {
 public:
  PoisonedSource(const Layout& layout, std::int64_t global_batch, DType storage,
                 std::vector<std::int64_t> steps)
      : poisoned_rank_(layout.dp_rank() == 1),
        global_batch_(global_batch),
        steps_(std::move(steps)) {
    FfnRows rows{.input = {1, 2, 3, 4}, .expected = {0, 1, 0, 1}, .tokens = 2};
    good_ = scripted_source(2, {rows}, storage);
    rows.input[2] = std::numeric_limits<float>::quiet_NaN();
    bad_ = scripted_source(2, {rows}, storage);
  }
  std::span<const MicroBatch> fetch_step(std::int64_t consumed) override {
    const std::int64_t step = consumed / global_batch_ + 1;
    const bool bad = poisoned_rank_ && std::count(steps_.begin(), steps_.end(), step) > 0;
    return (bad ? bad_ : good_)->fetch_step(consumed);
  }
  std::int64_t evaluation_batches() const override { return 0; }
  const MicroBatch& fetch_evaluation(std::int64_t i) override { return good_->fetch_evaluation(i); }
  std::string describe() const override { return "poisoned"; }

 private:
  bool poisoned_rank_;
  std::int64_t global_batch_;
  std::vector<std::int64_t> steps_;
  std::unique_ptr<DataSource> good_, bad_;
};

Config poisoned_config() {
  Config config = small_config();
  config.model = {
      .kind = ModelKind::kFfn, .vocab_size = 0, .context = 0, .hidden = 2, .ffn = 4, .layers = 1};
  config.train.global_batch = 2;
  config.optim.schedule.warmup_steps = 10;
  return with_layout(config, 2, 2, 1);
}

TrainingOptions poisoned(int steps, std::vector<std::int64_t> bad) {
  return {.steps = steps, .make_source = [bad](const Config& config, const Layout& layout) {
            return std::make_unique<PoisonedSource>(layout, config.train.global_batch,
                                                    precision_of(config).storage, bad);
          }};
}

TEST(NonFinite, EveryRankSkipsAndNothingChanges) {  // B26
  const Training t = train(poisoned_config(), poisoned(1, {1}));
  EXPECT_EQ(t.steps[0].outcome, StepOutcome::kNonFinite);
  EXPECT_EQ(t.steps[0].skipped_steps, 1);
  EXPECT_EQ(t.weights, t.initial);
}

// Only rank 3 has an infinite gradient: of the second half of fc2, whose activations are huge there
// and whose zero weights keep them from the output; only data rank 1 misses its target by far.
TEST(NonFinite, OneShardOfOneRankIsEnough) {  // B26
  const auto source = [](const Config&, const Layout& layout) {
    const float miss = layout.dp_rank() == 1 ? -100.0f : 0.0f;
    return scripted_source(
        2, {{.input = {1, 2, 3, 4}, .expected = {1 + miss, 2, 3 + miss, 4}, .tokens = 2}});
  };
  const auto prepare = [](RankContext& rank, TrainState& state) {
    for (float& weight : state.store.find("layers.0.fc2.weight").weight.flat().span<float>()) {
      weight = 0.0f;
    }
    if (rank.layout.tp_rank() == 1) {
      state.store.find("layers.0.fc1.bias").weight.span<float>()[0] = 3e37f;
    }
  };
  Config config = poisoned_config();
  config.model.activation = Activation::kRelu;
  const Training t = train(config, {.make_source = source, .prepare = prepare});
  EXPECT_EQ(t.steps[0].outcome, StepOutcome::kNonFinite);
  EXPECT_TRUE(std::isfinite(t.steps[0].loss));
  EXPECT_EQ(t.steps[0].skipped_steps, 1);
  EXPECT_EQ(t.weights, t.initial);
  for (const auto& [name, values] : t.gradients) {
    const bool finite = std::ranges::all_of(values, [](double v) { return std::isfinite(v); });
    EXPECT_EQ(finite, name != "layers.0.fc2.weight") << name;
  }
}

TEST(NonFinite, SkippedStepsMoveNeitherScheduleNorAdam) {  // B81
  const Config config = poisoned_config();
  const Training t = train(config, poisoned(5, {2, 3}));
  EXPECT_EQ(t.steps[4].skipped_steps, 2);
  EXPECT_EQ(t.steps[4].consumed_samples, 5 * config.train.global_batch);
  EXPECT_EQ(t.steps[4].lr, learning_rate(config.optim.schedule, config.optim.lr, 3));
  // The same three updates without the skipped steps between them.
  EXPECT_EQ(t.weights, train(config, poisoned(3, {})).weights);
}

TEST(NonFinite, StepsInARowAreCountedAnewAfterAGoodOne) {
  const Training t = train(poisoned_config(), poisoned(7, {2, 3, 5, 6, 7}));
  std::vector<std::int64_t> counts;
  for (const StepResult& step : t.steps) {
    counts.push_back(step.non_finite_in_a_row);
  }
  EXPECT_EQ(counts, (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 3}));
}

/// Rows that miss their targets by `miss`.
Training with_miss(const Config& config, float miss, int steps) {
  return train(
      config, {.steps = steps, .make_source = [miss](const Config& own, const Layout&) {
                 return scripted_source(
                     2,
                     {{.input = {1, 2, 3, 4}, .expected = {1 + miss, 2, 3 + miss, 4}, .tokens = 2}},
                     precision_of(own).storage);
               }});
}

// 2 (y - target) / (tokens * hidden) * 65536 is beyond 65504 until the scale has come down, on
// every rank alike; it costs steps, but no model is at fault.
TEST(LossScaling, ComesDownUntilGradientsAreFinite) {
  for (const auto& [tp, dp] : {std::pair{1, 1}, std::pair{2, 2}}) {
    Config config = with_layout(poisoned_config(), tp, dp, 1);
    config.precision = PrecisionChoice::kFp16;
    config.train.max_skipped = 1;
    const Training t = with_miss(config, 20.0f, 8);
    std::vector<double> scales;
    for (const StepResult& step : t.steps) {
      scales.push_back(step.loss_scale);
      EXPECT_EQ(step.non_finite_in_a_row, 0);
      EXPECT_EQ(step.outcome, step.step <= t.steps.back().skipped_steps ? StepOutcome::kOverflow
                                                                        : StepOutcome::kUpdated);
    }
    EXPECT_GE(t.steps.back().skipped_steps, 1);
    EXPECT_LE(t.steps.back().skipped_steps, 6);
    for (std::size_t i = 1; i < scales.size(); ++i) {
      EXPECT_EQ(scales[i], t.steps[i - 1].outcome == StepOutcome::kOverflow ? scales[i - 1] / 2
                                                                            : scales[i - 1]);
    }
    EXPECT_NE(t.weights, t.initial);
  }
}

TEST(LossScaling, ScalesNeitherTheNormNorTheUpdate) {
  Config config = poisoned_config();
  config.optim.kind = OptimizerKind::kSgd;  // Adam would divide the scale out again
  const Training fp32 = with_miss(config, 0.5f, 3);
  config.precision = PrecisionChoice::kFp16;
  const Training fp16 = with_miss(config, 0.5f, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(fp32.steps[i].loss_scale, 1.0);
    EXPECT_EQ(fp16.steps[i].loss_scale, 65536.0);
    EXPECT_NEAR(fp16.steps[i].loss / fp32.steps[i].loss, 1.0, 1e-2);
    EXPECT_NEAR(fp16.steps[i].grad_norm / fp32.steps[i].grad_norm, 1.0, 1e-2);
  }
  EXPECT_LT(worst_difference(fp16.weights, fp32.weights), 1e-2);
}

// At the floor it is the model's fault, and counts.
TEST(LossScaling, AtItsFloorAStepThatOverflowsCounts) {
  Config config = poisoned_config();
  config.precision = PrecisionChoice::kFp16;
  std::vector<std::int64_t> all;
  for (std::int64_t step = 1; step <= 19; ++step) {
    all.push_back(step);
  }
  const Training t = train(config, poisoned(19, all));
  EXPECT_EQ(t.steps[15].outcome, StepOutcome::kOverflow);
  EXPECT_EQ(t.steps[15].loss_scale, 2.0);
  EXPECT_EQ(t.steps[16].loss_scale, 1.0);
  EXPECT_EQ(t.steps[16].outcome, StepOutcome::kNonFinite);
  EXPECT_EQ(t.steps[18].non_finite_in_a_row, 3);
}

// A scale of 1 is a scale: only a run of another precision leaves none.
TEST(LossScaling, AtItsFloorItStaysAcrossAResume) {
  Config config = poisoned_config();
  config.precision = PrecisionChoice::kFp16;
  TrainingOptions options = poisoned(1, {});
  options.resumed = Progress{.loss_scale = LossScale{1.0, 0}};
  EXPECT_EQ(train(config, options).steps[0].loss_scale, 1.0);
  options.resumed = Progress{};
  EXPECT_EQ(train(config, options).steps[0].loss_scale, 65536.0);
}

}  // namespace
}  // namespace tandem::test
