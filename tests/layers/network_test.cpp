// A network cut over tensor-parallel ranks computes what one rank computes, whole or split into
// micro-batches; in double, so that only the order of sums differs.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

constexpr double kScale = 0.125;
constexpr double kTolerance = 1e-11;

struct Variant {
  std::string name;
  NetworkOptions options;
  double dropout;
};

/// Sizes for four ranks; a vocabulary of 10 leaves the last of them one real row of three.
NetworkOptions base(bool language_model) {
  return {.language_model = language_model,
          .vocab = language_model ? 10 : 0,
          .context = language_model ? 3 : 0,
          .hidden = 4,
          .ffn = 8,
          .layers = 2,
          .dropout = true,
          .max_rows = 24};
}

std::vector<Variant> variants() {
  Variant gelu{"GeluLayernormBiasDropout", base(true), 0.3};
  Variant swiglu{"SwigluRmsnormNoBias", base(true), 0.0};
  swiglu.options.activation = Activation::kSwiglu;
  swiglu.options.norm = NormKind::kRmsNorm;
  swiglu.options.bias = false;
  Variant swiglu_bias{"SwigluLayernormBias", swiglu.options, 0.3};
  swiglu_bias.options.norm = NormKind::kLayerNorm;
  swiglu_bias.options.bias = true;
  Variant relu{"ReluRmsnormBias", base(true), 0.0};
  relu.options.activation = Activation::kRelu;
  relu.options.norm = NormKind::kRmsNorm;
  Variant ffn{"FfnGeluLayernorm", base(false), 0.3};
  Variant empty_shard{"VocabularyOfFive", base(true), 0.0};
  empty_shard.options.vocab = 5;  // four ranks hold 2, 2, 1 and 0 of it
  return {gelu, swiglu, swiglu_bias, relu, ffn, empty_shard};
}

class NetworkLayouts : public ::testing::TestWithParam<std::tuple<Variant, int, bool>> {
 protected:
  NetworkSetup cut() const {
    const auto& [variant, tp, sequence_parallel] = GetParam();
    NetworkSetup setup{.options = variant.options, .dropout = variant.dropout, .tp = tp};
    setup.options.sequence_parallel = sequence_parallel;
    return setup;
  }
  NetworkSetup alone() const {
    const Variant& variant = std::get<0>(GetParam());
    return {.options = variant.options, .dropout = variant.dropout};
  }
  Rows rows(std::int64_t first, std::int64_t count, std::int64_t padding) const {
    return make_rows(alone().options, first, count, padding);
  }
};

TEST_P(NetworkLayouts, ComputeWhatOneRankComputes) {
  const std::vector<Rows> step = {rows(0, 12, 3)};
  expect_close(run_network(cut(), step, kScale), run_network(alone(), step, kScale), kTolerance);
}

TEST_P(NetworkLayouts, PaddingRowsAddNothing) {
  expect_close(run_network(cut(), {rows(0, 12, 4)}, kScale),
               run_network(alone(), {rows(0, 8, 0)}, kScale), kTolerance);
}

TEST_P(NetworkLayouts, AccumulateMicroBatchesIntoTheStepsGradient) {
  const Rows first = rows(0, 12, 0), second = rows(50, 12, 2);
  expect_close(run_network(cut(), {first, second}, kScale),
               run_network(alone(), {join(first, second)}, kScale), kTolerance);
}

TEST_P(NetworkLayouts, AnEmptyMicroBatchOverwritesGradientsWithZeros) {
  const NetworkResult result = run_network(cut(), {rows(0, 0, 0)}, kScale);
  EXPECT_EQ(result.loss, 0.0);
  for (const auto& [name, gradient] : result.gradients) {
    EXPECT_EQ(gradient, std::vector<double>(gradient.size(), 0.0)) << name;
  }
}

TEST_P(NetworkLayouts, AnEmptyMicroBatchAddsNothing) {
  const Rows full = rows(0, 12, 3), empty = rows(0, 0, 0);
  const NetworkResult expected = run_network(cut(), {full}, kScale);
  expect_close(run_network(cut(), {empty, full}, kScale), expected, 0.0);
  expect_close(run_network(cut(), {full, empty}, kScale), expected, 0.0);
}

std::string name_of_layout(const ::testing::TestParamInfo<std::tuple<Variant, int, bool>>& info) {
  const auto& [variant, tp, sequence_parallel] = info.param;
  return variant.name + "Tp" + std::to_string(tp) + (sequence_parallel ? "Sequence" : "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, NetworkLayouts,
                         ::testing::Combine(::testing::ValuesIn(variants()),
                                            ::testing::Values(1, 2, 4), ::testing::Bool()),
                         name_of_layout);

TEST(Network, CountsTheParametersOfMatmuls) {
  ParameterStore store({});
  NetworkOptions options = base(true);
  options.activation = Activation::kSwiglu;
  EXPECT_EQ(Network(store, options).matmul_parameters(), 2 * 3 * 4 * 8 + 10 * 4);
  options.activation = Activation::kGelu;
  ParameterStore plain({});
  EXPECT_EQ(Network(plain, options).matmul_parameters(), 2 * 2 * 4 * 8 + 10 * 4);
}

TEST(Network, ItsBucketsAreOnePerBlockInReverseOrderOfUseThenVectors) {
  run_ranks(1, [](World& world, Device& device) {
    TestRank rank(world, device, 1, kFloat);
    NetworkRun network(rank, base(true), 0.0);
    std::vector<std::string> names;
    const std::byte* next = nullptr;
    for (const GradientBucket& bucket : network.store().buckets()) {
      names.push_back(bucket.name);
      EXPECT_TRUE(bucket.main_grad.is_contiguous());
      if (next != nullptr) {
        EXPECT_EQ(bucket.main_grad.data, next) << bucket.name << " does not follow at once";
      }
      next = bucket.main_grad.data + bucket.main_grad.bytes();
      for (const Parameter* parameter : bucket.parameters) {
        EXPECT_GE(parameter->main_grad.data, bucket.main_grad.data) << parameter->name();
        EXPECT_LE(parameter->main_grad.data + parameter->main_grad.bytes(), next)
            << parameter->name();
      }
    }
    EXPECT_EQ(names,
              (std::vector<std::string>{"head", "layers.1", "layers.0", "embed", "vectors"}));
  });
}

}  // namespace

}  // namespace tandem::test
