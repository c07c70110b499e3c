// Uneven token counts through the real trainer and reducer, with numbers worked out by hand. The
// network is one block whose fc2 is zero, so y = x + b2, on two columns: a token with x - expected
// = (a, b) has loss (a^2 + b^2) / 2 and adds a to the gradient of b2[0].
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/train/training.h"

namespace tandem::test {
namespace {

constexpr std::int64_t kHidden = 2;

Config token_config(int tp, int dp, std::int64_t accumulation) {
  Config config = small_config();
  config.model = {.kind = ModelKind::kFfn,
                  .vocab_size = 0,
                  .context = 0,
                  .hidden = kHidden,
                  .ffn = 4,
                  .layers = 1};
  config.data.seq_len = 1000;
  config.train.global_batch = dp * accumulation;
  config.train.clip_grad_norm = 0.0;
  return with_layout(config, tp, dp, accumulation);
}

/// `tokens` rows of loss `loss` and gradient `gradient`.
FfnRows rows(std::int64_t tokens, double loss, double gradient, std::int64_t padding = 0) {
  FfnRows batch{.tokens = tokens, .padding = padding};
  for (std::int64_t i = 0; i < tokens; ++i) {
    batch.input.push_back(static_cast<float>(gradient));
    batch.input.push_back(static_cast<float>(std::sqrt(2.0 * loss - gradient * gradient)));
    batch.expected.insert(batch.expected.end(), {0.0f, 0.0f});
  }
  return batch;
}

/// fc2 = 0, and every main gradient NaN, as if left over: the first micro-batch must overwrite it.
void prepare(RankContext& rank, TrainState& state) {
  rank.device->fill_zero(*rank.compute, state.store.find("layers.0.fc2.weight").weight);
  rank.compute->synchronize();
  for (Parameter& parameter : state.store.parameters()) {
    for (float& value : parameter.main_grad.span<float>()) {
      value = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

Training run(int tp, std::vector<std::vector<FfnRows>> by_data_rank) {
  const auto dp = static_cast<int>(by_data_rank.size());
  const auto accumulation = static_cast<std::int64_t>(by_data_rank.front().size());
  return train(token_config(tp, dp, accumulation),
               {.make_source =
                    [&](const Config&, const Layout& layout) {
                      return scripted_source(
                          kHidden, by_data_rank[static_cast<std::size_t>(layout.dp_rank())]);
                    },
                .prepare = prepare});
}

TEST(TokenWeights, RanksWith900And300TokensCountByTokens) {  // B01, B138
  for (const int tp : {1, 2}) {
    const Training t = run(tp, {{rows(900, 2.0, 1.0)}, {rows(300, 4.0, -1.0)}});
    EXPECT_EQ(t.steps[0].tokens, 1200);
    EXPECT_NEAR(t.steps[0].loss, 2.5, 2.5e-6);
    EXPECT_NEAR(t.gradients.at("layers.0.fc2.bias")[0], 0.5, 1e-6);
  }
}

TEST(TokenWeights, HoldOverAccumulationWithAnEmptyMicroBatch) {  // B03
  for (const int tp : {1, 2}) {
    const Training t =
        run(tp, {{rows(5, 2.0, 1.0), rows(0, 0, 0)}, {rows(2, 1.5, 1.0), rows(9, 1.0, 1.0)}});
    EXPECT_NEAR(t.steps[0].loss, 22.0 / 16.0, 2e-6);
    EXPECT_NEAR(t.gradients.at("layers.0.fc2.bias")[0], 1.0, 1e-6);
  }
}

TEST(TokenWeights, AnEmptyFirstMicroBatchOverwritesWhatTheBufferHeld) {  // B03, B10
  const Training t =
      run(2, {{rows(0, 0, 0), rows(5, 2.0, 1.0)}, {rows(2, 1.5, 1.0), rows(9, 1.0, 1.0)}});
  EXPECT_NEAR(t.steps[0].loss, 22.0 / 16.0, 2e-6);
  for (const auto& [name, values] : t.gradients) {
    for (const double value : values) {
      EXPECT_TRUE(std::isfinite(value)) << name;
    }
  }
}

TEST(TokenWeights, AMicroBatchOfIgnoredTokensAddsNothing) {  // B10
  const Training t = run(1, {{rows(0, 0, 0, 64), rows(4, 1.5, 1.0, 60)}});
  EXPECT_EQ(t.steps[0].tokens, 4);
  EXPECT_NEAR(t.steps[0].loss, 1.5, 2e-6);
  EXPECT_NEAR(t.gradients.at("layers.0.fc2.bias")[0], 1.0, 1e-6);
}

TEST(TokenWeights, UnevenSamplesAreNotAveragedByRank) {  // B09
  const Training t = run(1, {{rows(7, 1.0, 1.0)}, {rows(6, 2.0, 1.0)}});
  EXPECT_NEAR(t.steps[0].loss, 19.0 / 13.0, 2e-6);
}

TEST(TokenWeights, ARankWithoutTokensJoins) {  // B39
  const Training t = run(1, {{rows(7, 2.0, 1.0)}, {rows(0, 0, 0)}});
  EXPECT_NEAR(t.steps[0].loss, 2.0, 2e-6);
}

// Two sequences of eight, twice: targets stand one place behind, so that each position counts.
TEST(TokenWeights, TheCountIsOfTheWholeStepAndOfEveryTarget) {  // B06
  for (const int tp : {1, 2}) {
    Config config = small_config();
    config.data.seq_len = 8;
    config.data.documents = Documents::kPacked;
    config.train.global_batch = 4;
    config = with_layout(config, tp, 1, 2);
    std::int64_t targets = 0;
    const auto source = make_data_source(config, Layout{});
    for (const MicroBatch& batch : source->fetch_step(0)) {
      targets += std::ranges::count_if(batch.targets.span<std::int32_t>(),
                                       [](std::int32_t target) { return target >= 0; });
    }
    EXPECT_EQ(targets, 32);
    EXPECT_EQ(train(config).steps[0].tokens, 32);
  }
}

TEST(TokenWeights, AStepWithoutAnyTokenChangesNothingAndCountsAsSkipped) {
  const Training t = run(2, {{rows(0, 0, 0)}, {rows(0, 0, 0, 64)}});
  EXPECT_EQ(t.steps[0].outcome, StepOutcome::kNoTokens);
  EXPECT_EQ(t.steps[0].skipped_steps, 1);
  EXPECT_EQ(t.weights, t.initial);
}

}  // namespace
}  // namespace tandem::test
