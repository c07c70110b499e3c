// The reference device itself: hand numbers, and finite differences of each backward kernel in
// double. The other devices are held against it in kernel_test.cpp.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "tests/core/kernel_support.h"

namespace tandem::testing {
namespace {

using Values = std::vector<double>;

class Reference : public ::testing::Test {
 protected:
  Tensor of(Values& values, const Shape& shape) { return Tensor::of<double>(values, shape); }

  std::unique_ptr<Device> device_ = make_reference_device(1);
  std::unique_ptr<Stream> stream_ = device_->make_stream("test");
};

Values normals(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  Values values(count);
  std::ranges::generate(values, [&] { return normal(generator); });
  return values;
}

/// Holds `gradient` of the scalar loss(x) against central differences.
void expect_gradient(Values& x, const Values& gradient, const std::function<double()>& loss) {
  ASSERT_EQ(x.size(), gradient.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double before = x[i], step = 1e-5;
    x[i] = before + step;
    const double up = loss();
    x[i] = before - step;
    const double down = loss();
    x[i] = before;
    EXPECT_NEAR((up - down) / (2 * step), gradient[i], 1e-7) << "element " << i;
  }
}

double dot(const Values& a, const Values& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void expect_near(const Values& got, const Values& want, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
  }
}

TEST_F(Reference, GemmByHand) {  // B52's product; the bias is added once
  Values x = {1, 2, 3, 4}, w = {1, 0, 1, 2, 0, 1, 1, -1}, bias = {10, 20}, y(2, NAN);
  device_->gemm(*stream_, {.a = of(x, {1, 4}),
                           .b = of(w, {2, 4}),
                           .c = of(y, {1, 2}),
                           .transpose_b = true,
                           .bias = of(bias, {2})});
  expect_near(y, {22, 21});
}

TEST_F(Reference, ActivationsByHand) {
  Values x = {-1.0, 0.0, 1.0, 2.0}, y(4, NAN), gated(2, NAN);
  device_->activation_forward(*stream_, {.pre = of(x, {1, 4}), .out = of(y, {1, 4})});
  expect_near(y, {-0.15880801, 0.0, 0.84119199, 1.95459769}, 1e-8);
  device_->activation_forward(
      *stream_, {.kind = Activation::kRelu, .pre = of(x, {1, 4}), .out = of(y, {1, 4})});
  expect_near(y, {0, 0, 1, 2});
  device_->activation_forward(
      *stream_, {.kind = Activation::kSwiglu, .pre = of(x, {1, 4}), .out = of(gated, {1, 2})});
  expect_near(gated, {-1.0 / (1.0 + std::exp(1.0)), 0.0});
}

TEST_F(Reference, ActivationGradients) {
  for (const Activation kind : {Activation::kGelu, Activation::kRelu, Activation::kSwiglu}) {
    const std::int64_t n = kind == Activation::kSwiglu ? 3 : 6;
    Values pre = normals(12, 1), d_out = normals(static_cast<std::size_t>(2 * n), 2);
    Values out(static_cast<std::size_t>(2 * n)), d_pre(12, NAN);
    device_->activation_backward(*stream_, {.kind = kind,
                                            .pre = of(pre, {2, 6}),
                                            .d_out = of(d_out, {2, n}),
                                            .d_pre = of(d_pre, {2, 6})});
    expect_gradient(pre, d_pre, [&] {
      device_->activation_forward(*stream_,
                                  {.kind = kind, .pre = of(pre, {2, 6}), .out = of(out, {2, n})});
      return dot(out, d_out);
    });
  }
}

TEST_F(Reference, NormsByHand) {
  Values x = {1, 2, 3, 4}, weight = {1, 1, 1, 2}, bias = {0, 0, 0, 1}, y(4, NAN), mean(1), rstd(1);
  device_->norm_forward(*stream_, {.eps = 0.0,
                                   .x = of(x, {1, 4}),
                                   .weight = of(weight, {4}),
                                   .bias = of(bias, {4}),
                                   .y = of(y, {1, 4}),
                                   .mean = of(mean, {1}),
                                   .rstd = of(rstd, {1})});
  const double s = 1.0 / std::sqrt(1.25);
  expect_near(y, {-1.5 * s, -0.5 * s, 0.5 * s, 3.0 * s + 1.0});
  device_->norm_forward(*stream_, {.kind = NormKind::kRmsNorm,
                                   .eps = 0.5,
                                   .x = of(x, {1, 4}),
                                   .weight = of(weight, {4}),
                                   .bias = {},
                                   .y = of(y, {1, 4}),
                                   .mean = {},
                                   .rstd = of(rstd, {1})});
  const double r = 1.0 / std::sqrt(8.0);
  expect_near(y, {r, 2 * r, 3 * r, 8 * r});
}

TEST_F(Reference, NormGradients) {
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    const bool layer = kind == NormKind::kLayerNorm;
    Values x = normals(15, 3), weight = normals(5, 4), bias = normals(5, 5), d_y = normals(15, 6);
    Values y(15), mean(3), rstd(3), d_x(15, NAN), d_weight(5, NAN), d_bias(5, NAN);
    const auto forward = [&] {
      device_->norm_forward(*stream_, {.kind = kind,
                                       .x = of(x, {3, 5}),
                                       .weight = of(weight, {5}),
                                       .bias = layer ? of(bias, {5}) : Tensor{},
                                       .y = of(y, {3, 5}),
                                       .mean = layer ? of(mean, {3}) : Tensor{},
                                       .rstd = of(rstd, {3})});
      return dot(y, d_y);
    };
    forward();
    device_->norm_backward(*stream_, {.kind = kind,
                                      .d_y = of(d_y, {3, 5}),
                                      .x = of(x, {3, 5}),
                                      .weight = of(weight, {5}),
                                      .mean = layer ? of(mean, {3}) : Tensor{},
                                      .rstd = of(rstd, {3}),
                                      .residual = {},
                                      .d_x = of(d_x, {3, 5}),
                                      .d_weight = of(d_weight, {5}),
                                      .d_bias = layer ? of(d_bias, {5}) : Tensor{}});
    expect_gradient(x, d_x, forward);
    expect_gradient(weight, d_weight, forward);
    if (layer) {
      expect_gradient(bias, d_bias, forward);
    }
  }
}

/// Loss sum and gradients of a vocabulary of 4 cut into `shards`, the row statistics reduced as the
/// tensor-parallel group would.
struct CrossEntropy {
  double loss = 0.0;
  Values gradient;
};
CrossEntropy cross_entropy(Device& device, Stream& stream, const Values& logits,
                           std::int32_t target, std::int64_t shards) {
  const std::int64_t width = 4 / shards;
  double max = -INFINITY;
  Values sums(2), all = logits;
  Tensor whole = Tensor::of<double>(all, {1, 4});
  std::vector<std::int32_t> targets = {target};
  const Tensor t = Tensor::of<std::int32_t>(targets, {1});
  for (std::int64_t s = 0; s < shards; ++s) {
    Values local(1, NAN);
    device.cross_entropy_max(stream, {.logits = whole.slice(1, s * width, width),
                                      .row_max = Tensor::of<double>(local, {1}),
                                      .valid_columns = width});
    max = std::max(max, local[0]);
  }
  Values row_max = {max};
  const Tensor m = Tensor::of<double>(row_max, {1});
  for (std::int64_t s = 0; s < shards; ++s) {
    Values local(2, NAN);
    device.cross_entropy_sums(stream, {.logits = whole.slice(1, s * width, width),
                                       .targets = t,
                                       .row_max = m,
                                       .sums = Tensor::of<double>(local, {1, 2}),
                                       .vocab_start = s * width,
                                       .valid_columns = width});
    sums[0] += local[0];
    sums[1] += local[1];
  }
  CrossEntropy result{.gradient = Values(4, NAN)};
  for (std::int64_t s = 0; s < shards; ++s) {
    result.loss = 0.0;
    std::span<double> loss(&result.loss, 1);
    device.cross_entropy_backward(
        stream, {.logits = whole.slice(1, s * width, width),
                 .targets = t,
                 .row_max = m,
                 .sums = Tensor::of<double>(sums, {1, 2}),
                 .d_logits = Tensor::of<double>(result.gradient, {1, 4}).slice(1, s * width, width),
                 .loss_sum = Tensor::of<double>(loss, {1}),
                 .vocab_start = s * width,
                 .valid_columns = width});
  }
  return result;
}

TEST_F(Reference, CrossEntropyOverTwoShardsIsTheWhole) {  // B14
  for (const std::int64_t shards : {1, 2, 4}) {
    const auto [loss, gradient] = cross_entropy(*device_, *stream_, {1, 2, 3, 4}, 2, shards);
    EXPECT_NEAR(loss, 1.4401897, 1e-7);
    expect_near(gradient, {0.0320586, 0.0871443, -0.7631172, 0.6439143}, 1e-7);
  }
}

TEST_F(Reference, ShardsThatDoNotOwnTheTargetStillHaveAGradient) {  // B16
  const auto [loss, gradient] = cross_entropy(*device_, *stream_, {3, 3, 3, 3}, 0, 2);
  EXPECT_NEAR(loss, std::log(4.0), 1e-12);
  expect_near(gradient, {-0.75, 0.25, 0.25, 0.25});
}

TEST_F(Reference, CrossEntropyGradient) {
  Values logits = normals(4, 7);
  const auto [loss, gradient] = cross_entropy(*device_, *stream_, logits, 1, 2);
  EXPECT_GT(loss, 0.0);
  expect_gradient(logits, gradient,
                  [&] { return cross_entropy(*device_, *stream_, logits, 1, 1).loss; });
}

TEST_F(Reference, MeanSquaredErrorGradient) {
  Values y = normals(6, 8), target = normals(6, 9), d_y(6, NAN), loss(1, 0.0);
  const auto call = [&](Tensor gradient) {
    loss[0] = 0.0;
    device_->mean_squared_error(*stream_, {.y = of(y, {2, 3}),
                                           .target = of(target, {2, 3}),
                                           .d_y = gradient,
                                           .loss_sum = of(loss, {1})});
    return loss[0];
  };
  call(of(d_y, {2, 3}));
  expect_gradient(y, d_y, [&] { return call({}); });
}

TEST_F(Reference, DropoutGradient) {
  Values x = normals(40, 10), residual(40, 0.0), d_out = normals(40, 11), out(40), d_in(40, NAN);
  std::vector<std::int64_t> keys = {5, 6, 7, 8};
  const Tensor row_keys = Tensor::of<std::int64_t>(keys, {4});
  const Dropout dropout{.p = 0.5, .seed = 3, .update = 1};
  device_->dropout_backward(*stream_, {.d_out = of(d_out, {4, 10}),
                                       .d_in = of(d_in, {4, 10}),
                                       .row_keys = row_keys,
                                       .dropout = dropout});
  EXPECT_GT(std::ranges::count(d_in, 0.0), 5);
  expect_gradient(x, d_in, [&] {
    device_->bias_dropout_add(*stream_, {.branch = of(x, {4, 10}),
                                         .bias = {},
                                         .residual = of(residual, {4, 10}),
                                         .out = of(out, {4, 10}),
                                         .row_keys = row_keys,
                                         .dropout = dropout});
    return dot(out, d_out);
  });
}

TEST_F(Reference, EmbeddingGradient) {
  Values table = normals(2 * 3 * 2, 12), d_y = normals(6, 13), y(6), d_table(12, NAN);
  std::vector<std::int32_t> ids = {4, 5, 6, 4, -1, 6}, workspace(2 * 7, 77);
  const Tensor id = Tensor::of<std::int32_t>(ids, {3, 2});
  device_->embedding_backward(*stream_, {.ids = id,
                                         .d_y = of(d_y, {3, 2}),
                                         .d_table = of(d_table, {2, 3, 2}),
                                         .workspace = Tensor::of<std::int32_t>(workspace, {2, 7}),
                                         .vocab_start = 4});
  expect_gradient(table, d_table, [&] {
    device_->embedding_forward(
        *stream_, {.ids = id, .table = of(table, {2, 3, 2}), .y = of(y, {3, 2}), .vocab_start = 4});
    return dot(y, d_y);
  });
}

// Optimizer rows run on every device.
class Optimizers : public KernelTest {
 protected:
  Twin one(double value) { return of({value}, {1}, main()); }
};

TEST_P(Optimizers, ZeroGradientsChangeNothing) {  // B27
  const Twin w = one(2.0), m = one(0.0), v = one(0.0), grad = one(0.0), weight = one(NAN);
  run([&](Device& d, Stream& s, auto at) {
    d.adamw(s, {.master = at(w),
                .m = at(m),
                .v = at(v),
                .grad = at(grad),
                .weight = at(weight),
                .lr = 0.1});
  });
  expect_values(w, {2.0});
  expect_values(weight, {2.0});
}

TEST_P(Optimizers, DecayIsDecoupledAndCanBeOff) {  // B109
  for (const double decay : {0.5, 0.0}) {
    const Twin w = one(2.0), m = one(0.0), v = one(0.0), grad = one(0.0);
    run([&](Device& d, Stream& s, auto at) {
      d.adamw(s, {.master = at(w),
                  .m = at(m),
                  .v = at(v),
                  .grad = at(grad),
                  .weight = {},
                  .lr = 0.1,
                  .weight_decay = decay});
    });
    expect_values(w, {decay > 0.0 ? 1.9 : 2.0}, 1e-6);
  }
}

TEST_P(Optimizers, EpsilonIsOutsideTheRootAndAfterTheCorrection) {  // B113
  const Twin w = one(0.0), m = one(0.0), v = one(0.0), grad = one(1e-8);
  run([&](Device& d, Stream& s, auto at) {
    d.adamw(s, {.master = at(w),
                .m = at(m),
                .v = at(v),
                .grad = at(grad),
                .weight = {},
                .lr = 1.0,
                .beta2 = 0.999,
                .eps = 1e-8});
  });
  expect_values(w, {-0.5}, 1e-6);
}

TEST_P(Optimizers, ThreeStepsOfAdam) {  // B115
  const Twin w = one(0.0), m = one(0.0), v = one(0.0);
  const std::vector<Twin> gradients = {one(1.0), one(-2.0), one(0.5)};
  run([&](Device& d, Stream& s, auto at) {
    for (std::int64_t t = 1; t <= 3; ++t) {
      d.adamw(s, {.master = at(w),
                  .m = at(m),
                  .v = at(v),
                  .grad = at(gradients[static_cast<std::size_t>(t - 1)]),
                  .weight = {},
                  .lr = 0.1,
                  .update = t});
    }
  });
  expect_values(w, {-0.0499402896}, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Devices, Optimizers, ::testing::ValuesIn(device_cases()), case_name);

}  // namespace
}  // namespace tandem::testing
