// Updates of a whole parameter store: which parameters decay, and the numbers of AdamW and SGD
// worked by hand.
#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

/// One matrix [1, 1], one bias and one norm weight, on the cpu device.
class OptimizerTest : public ::testing::Test {
 protected:
  void build(const OptimizerOptions& options, const Precision& precision = kFloat) {
    options_ = options;
    built_.emplace(*device_, [&](Arena& arena) {
      auto store = std::make_unique<ParameterStore>(Layout{});
      store->add({.name = "fc1.weight", .shape = {1, 1}, .block = "b"});
      store->add({.name = "fc1.bias", .shape = {1}});
      store->add({.name = "norm.weight", .shape = {1}, .init_value = 1.0});
      store->allocate(arena, precision, {.moments = optimizer_moments(options)});
      return store;
    });
  }
  const Parameter& at(const char* name) const { return (*built_)->find(name); }
  double master(const char* name) const { return get(at(name).shards.front().master, 0); }
  double weight(const char* name) const { return get(at(name).weight.flat(), 0); }
  void set(const char* name, double value) {
    set_values(at(name), [value](std::int64_t) { return value; });
  }
  void update(double gradient, double lr, std::int64_t update, double grad_scale = 1.0) {
    for (const Parameter& parameter : (*built_)->parameters()) {
      put(parameter.main_grad.flat(), 0, gradient);
    }
    update_parameters(*device_, *stream_, **built_, options_,
                      {.lr = lr, .grad_scale = grad_scale, .update = update});
    stream_->synchronize();
  }

 private:
  std::unique_ptr<Device> device_ = one_thread_cpu();
  std::unique_ptr<Stream> stream_ = device_->make_stream("compute");
  OptimizerOptions options_;
  std::optional<Built<ParameterStore>> built_;
};

// B109
TEST_F(OptimizerTest, DecaysMatricesButNeitherBiasesNorNormWeights) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    build({.kind = kind, .weight_decay = 0.5});
    set("fc1.weight", 2.0);
    set("fc1.bias", 2.0);
    set("norm.weight", 1.0);
    update(0.0, 0.1, 1);
    EXPECT_FLOAT_EQ(static_cast<float>(weight("fc1.weight")), 1.9f);
    EXPECT_EQ(weight("fc1.bias"), 2.0);
    EXPECT_EQ(weight("norm.weight"), 1.0);
  }
}

// B112: what has no gradient and no decay does not move at all.
TEST_F(OptimizerTest, VectorsWithoutGradientsDoNotDrift) {
  build({.weight_decay = 0.5});
  set("fc1.bias", 0.3);
  const double before = weight("fc1.bias");
  for (std::int64_t t = 1; t <= 10; ++t) {
    update(0.0, 0.1, t);
  }
  EXPECT_EQ(weight("fc1.bias"), before);
}

// B113: epsilon stands behind the bias correction and outside the root.
TEST_F(OptimizerTest, AdamWAddsEpsilonToTheCorrectedRoot) {
  build({.betas = {0.9, 0.999}, .eps = 1e-8, .weight_decay = 0.0});
  set("fc1.weight", 0.0);
  update(1e-8, 1.0, 1);
  EXPECT_NEAR(std::abs(weight("fc1.weight")), 0.5, 1e-6);
}

// B115
TEST_F(OptimizerTest, AdamWGivesTheNumbersOfTheDefinition) {
  for (const Precision& precision : {kFloat, kBFloat}) {
    build({.betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.0}, precision);
    set("fc1.weight", 0.0);
    update(1.0, 0.1, 1);
    update(-2.0, 0.1, 2);
    update(0.5, 0.1, 3);
    EXPECT_NEAR(master("fc1.weight"), -0.0499402896, 1e-6 * 0.05);
  }
}

TEST_F(OptimizerTest, ScalesEveryGradient) {
  build({.kind = OptimizerKind::kSgd, .weight_decay = 0.0, .momentum = 0.0});
  set("fc1.weight", 1.0);
  set("fc1.bias", 1.0);
  update(4.0, 0.5, 1, 0.25);
  EXPECT_EQ(weight("fc1.weight"), 0.5);
  EXPECT_EQ(weight("fc1.bias"), 0.5);
}

// B75: bf16 alone would stay at 1.
TEST_F(OptimizerTest, SmallUpdatesCollectInTheMasters) {
  build({.kind = OptimizerKind::kSgd, .weight_decay = 0.0, .momentum = 0.0}, kBFloat);
  set("fc1.weight", 1.0);
  for (std::int64_t t = 1; t <= 10; ++t) {
    update(1.0, 1e-3, t);
  }
  EXPECT_NEAR(master("fc1.weight"), 0.99, 1e-6);
  EXPECT_EQ(weight("fc1.weight"), 0.98828125);
}

TEST_F(OptimizerTest, SgdWithMomentumGivesTheNumbersOfTheDefinition) {
  build({.kind = OptimizerKind::kSgd, .weight_decay = 0.5, .momentum = 0.9});
  set("fc1.weight", 1.0);
  set("fc1.bias", 1.0);
  update(1.0, 0.1, 1);  // buffer 1: 1 - 0.1 * (1 + 0.5)
  EXPECT_NEAR(weight("fc1.weight"), 0.85, 1e-6);
  EXPECT_NEAR(weight("fc1.bias"), 0.9, 1e-6);
  update(1.0, 0.1, 2);  // buffer 1.9: 0.85 - 0.1 * (1.9 + 0.425)
  EXPECT_NEAR(weight("fc1.weight"), 0.6175, 1e-6);
  EXPECT_NEAR(weight("fc1.bias"), 0.71, 1e-6);
  update(1.0, 0.1, 3);  // buffer 2.71
  EXPECT_NEAR(weight("fc1.bias"), 0.439, 1e-6);
}

TEST(Optimizer, KeepsTheMomentsItsKernelNeeds) {
  EXPECT_EQ(optimizer_moments({.kind = OptimizerKind::kAdamW}), 2);
  EXPECT_EQ(optimizer_moments({.kind = OptimizerKind::kSgd, .momentum = 0.9}), 1);
  EXPECT_EQ(optimizer_moments({.kind = OptimizerKind::kSgd, .momentum = 0.0}), 1);
}

}  // namespace

}  // namespace tandem::test
