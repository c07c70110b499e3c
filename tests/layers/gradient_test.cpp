// The hand-written backward of the whole network against central finite differences of its forward,
// in double, for every element of every parameter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

NetworkOptions tiny(Activation activation, NormKind norm, bool bias, bool language_model) {
  return {.language_model = language_model,
          .vocab = language_model ? 10 : 0,
          .context = language_model ? 3 : 0,
          .hidden = 4,
          .ffn = 6,
          .layers = 2,
          .activation = activation,
          .norm = norm,
          .bias = bias,
          .dropout = true,
          .max_rows = 12};
}

void expect_gradients_match_differences(const NetworkOptions& options, double dropout) {
  // Small beside the distance of every relu input from its kink in this data, large beside the
  // rounding of the loss.
  constexpr double kStep = 1e-5, kScale = 0.37;
  run_ranks(
      1,
      [&](World& world, Device& device) {
        TestRank rank(world, device, 1, kDouble);
        NetworkRun network(rank, options, dropout);
        const Rows rows = make_rows(options, 20, 12, 3);
        const double loss = network.step({rows}, kScale);
        EXPECT_GT(loss, 0.0);
        EXPECT_EQ(loss, network.loss(rows)) << "forward alone gives another loss";
        for (const Parameter& parameter : network.store().parameters()) {
          for (std::int64_t i = 0; i < parameter.weight.numel(); ++i) {
            const double value = get(parameter.weight, i);
            put(parameter.weight, i, value + kStep);
            const double above = network.loss(rows);
            put(parameter.weight, i, value - kStep);
            const double below = network.loss(rows);
            put(parameter.weight, i, value);
            const double slope = kScale * (above - below) / (2.0 * kStep);
            EXPECT_NEAR(get(parameter.main_grad, i), slope, 2e-7 * std::max(1.0, std::abs(slope)))
                << parameter.name() << " " << i;
          }
        }
      },
      one_thread_reference);
}

using Choice = std::tuple<Activation, NormKind, bool, double, bool>;
class NetworkGradient : public ::testing::TestWithParam<Choice> {};

TEST_P(NetworkGradient, IsTheSlopeOfTheLoss) {
  const auto& [activation, norm, bias, dropout, language_model] = GetParam();
  expect_gradients_match_differences(tiny(activation, norm, bias, language_model), dropout);
}

INSTANTIATE_TEST_SUITE_P(
    Choices, NetworkGradient,
    ::testing::Combine(::testing::Values(Activation::kGelu, Activation::kSwiglu, Activation::kRelu),
                       ::testing::Values(NormKind::kLayerNorm, NormKind::kRmsNorm),
                       ::testing::Bool(), ::testing::Values(0.0, 0.3), ::testing::Bool()));

}  // namespace

}  // namespace tandem::test
