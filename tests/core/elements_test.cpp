// The element functions that device kernels are made of, in their host form, against the reference
// device and core/dtype.h.
#include "core/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "core/device.h"

namespace tandem {
namespace {

class Elements : public ::testing::Test {
 protected:
  Elements() : device_(make_reference_device(1)), stream_(device_->make_stream("test")) {}

  std::vector<double> normal(double scale) {
    std::normal_distribution<double> distribution(0.0, scale);
    std::vector<double> values(1000);
    for (double& value : values) {
      value = distribution(random_);
    }
    return values;
  }
  static Tensor row(std::vector<double>& values) {
    return Tensor::of<double>(values, {1, static_cast<std::int64_t>(values.size())});
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::mt19937_64 random_{1};
};

TEST_F(Elements, ActivationsAndTheirDerivatives) {
  std::vector<double> pre = normal(3.0), d_out = normal(1.0), out(1000), d_pre(1000);
  for (const Activation kind : {Activation::kGelu, Activation::kRelu}) {
    device_->activation_forward(*stream_, {.kind = kind, .pre = row(pre), .out = row(out)});
    device_->activation_backward(
        *stream_, {.kind = kind, .pre = row(pre), .d_out = row(d_out), .d_pre = row(d_pre)});
    for (std::size_t i = 0; i < pre.size(); ++i) {
      const bool is_gelu = kind == Activation::kGelu;
      const double slope =
          is_gelu ? d_out[i] * gelu_slope(pre[i]) : relu_gradient(pre[i], d_out[i]);
      EXPECT_NEAR(is_gelu ? gelu(pre[i]) : relu(pre[i]), out[i], 1e-14);
      EXPECT_NEAR(slope, d_pre[i], 1e-13);
      const auto x = static_cast<float>(pre[i]);
      if (is_gelu) {
        EXPECT_NEAR(gelu(x), gelu(static_cast<double>(x)), 1e-6);
        EXPECT_NEAR(gelu_slope(x), gelu_slope(static_cast<double>(x)), 4e-6);
      }
    }
  }
}

TEST_F(Elements, SwigluAndItsGradient) {
  std::vector<double> pre = normal(3.0), d_out = normal(1.0), out(500), d_pre(1000);
  d_out.resize(500);
  device_->activation_forward(*stream_,
                              {.kind = Activation::kSwiglu, .pre = row(pre), .out = row(out)});
  device_->activation_backward(
      *stream_,
      {.kind = Activation::kSwiglu, .pre = row(pre), .d_out = row(d_out), .d_pre = row(d_pre)});
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_NEAR(swiglu(pre[i], pre[500 + i]), out[i], 1e-13);
    const auto gradient = swiglu_gradient(pre[i], pre[500 + i], d_out[i]);
    EXPECT_NEAR(gradient.gate, d_pre[i], 1e-12);
    EXPECT_NEAR(gradient.up, d_pre[500 + i], 1e-12);
  }
}

TEST_F(Elements, FarOutAndNotFinite) {
  for (const float x : {50.0f, 1e10f, 1e20f, 3e38f}) {
    EXPECT_EQ(gelu(x), x);
    EXPECT_EQ(gelu_slope(x), 1.0f);
    EXPECT_EQ(gelu_slope(-x), 0.0f);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(gelu(nan)) && std::isnan(gelu_slope(nan)) && std::isnan(relu(nan)));
  EXPECT_TRUE(std::isnan(swiglu(nan, 1.0f)));
  EXPECT_EQ(swiglu(-200.0f, 1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(larger(nan, 1.0f)) && std::isnan(larger(1.0f, nan)));
  EXPECT_TRUE(std::isnan(smaller(nan, 1.0f)) && std::isnan(smaller(1.0f, nan)));
  EXPECT_EQ(larger(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(smaller(1.0f, 2.0f), 1.0f);
}

TEST_F(Elements, DropoutDecidesAndScalesLikeTheReference) {
  const std::int64_t rows = 7, n = 33;
  std::vector<std::int64_t> keys = {0, 5, 1 << 20, 17, (std::int64_t{1} << 40) + 3, 2, 1};
  std::vector<double> d_out(static_cast<std::size_t>(rows * n), 1.0), d_in(d_out.size());
  for (const double p : {0.1, 0.5, 0.9}) {
    const Dropout dropout{.p = p, .seed = 0x123456789abcdefull, .update = 9, .layer = 3};
    device_->dropout_backward(*stream_, {.d_out = Tensor::of<double>(d_out, {rows, n}),
                                         .d_in = Tensor::of<double>(d_in, {rows, n}),
                                         .row_keys = Tensor::of<std::int64_t>(keys, {rows}),
                                         .dropout = dropout});
    const DropoutRule rule(dropout);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        const PhiloxBlock draws = rule.draws(keys[static_cast<std::size_t>(r)], c / 4);
        EXPECT_EQ(rule.apply(1.0f, draws.x[c % 4]),
                  static_cast<float>(d_in[static_cast<std::size_t>(r * n + c)]));
      }
    }
    EXPECT_EQ(rule.apply(std::numeric_limits<float>::infinity(), 0), 0.0f);
  }
}

TEST_F(Elements, OptimizerUpdates) {
  std::vector<double> master = normal(1.0), m = normal(0.1), v = normal(0.1), grad = normal(1.0);
  for (double& value : v) {
    value = std::abs(value);
  }
  for (const std::int64_t update : {1, 2, 1000}) {
    std::vector<double> after = master, after_m = m, after_v = v, buffer = m, stepped = master;
    const AdamW adamw{.master = row(after),
                      .m = row(after_m),
                      .v = row(after_v),
                      .grad = row(grad),
                      .weight = {},
                      .lr = 0.01,
                      .weight_decay = 0.1,
                      .grad_scale = 0.5,
                      .update = update};
    const Sgd sgd{.master = row(stepped),
                  .buffer = row(buffer),
                  .grad = row(grad),
                  .weight = {},
                  .lr = 0.01,
                  .momentum = 0.9,
                  .weight_decay = 0.1,
                  .grad_scale = 0.5,
                  .update = update};
    device_->adamw(*stream_, adamw);
    device_->sgd(*stream_, sgd);
    for (std::size_t i = 0; i < master.size(); ++i) {
      const auto start = static_cast<float>(master[i]), g = static_cast<float>(grad[i]);
      const auto first = static_cast<float>(m[i]), second = static_cast<float>(v[i]);
      const AdamWState state = AdamWRule(adamw).apply({start, first, second}, g);
      EXPECT_NEAR(state.master, after[i], 1e-6);
      EXPECT_NEAR(state.m, after_m[i], 1e-6);
      EXPECT_NEAR(state.v, after_v[i], 1e-6);
      const SgdState step = SgdRule(sgd).apply({start, first}, g);
      EXPECT_NEAR(step.master, stepped[i], 1e-6);
      EXPECT_NEAR(step.buffer, buffer[i], 1e-6);
    }
  }
}

/// Floats of all sizes, and doubles near the ties between two values of a 16-bit type, where
/// rounding twice goes wrong; `kept` are the bits of a float that the type keeps.
template <typename Check>
void for_many_values(std::uint32_t kept, const Check& check) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    check(static_cast<double>(std::bit_cast<float>(bits)));
    const std::uint32_t half = (~kept + 1) >> 1;
    // Exponents at which fp16 has numbers, too.
    const std::uint32_t small = (bits & 0x807fffffu) | ((96u + (bits >> 23) % 64u) << 23);
    for (const std::uint32_t u : {bits, small}) {
      const auto tie = static_cast<double>(std::bit_cast<float>((u & kept) | half));
      for (const double near : {tie, std::nextafter(tie, 1e300), std::nextafter(tie, -1e300)}) {
        check(near);
      }
    }
  }
}

/// The number of the type that is nearest to `value`, found by trying its neighbours.
template <typename T>
double nearest(double value, T guess) {
  double best = static_cast<double>(guess);
  for (const int step : {-1, 1}) {
    T other;
    other.bits = static_cast<std::uint16_t>(guess.bits + step);
    const double candidate = static_cast<double>(other);
    if (!std::isfinite(candidate) || !std::isfinite(best)) {
      continue;
    }
    const double gain = std::fabs(best - value) - std::fabs(candidate - value);
    if (gain > 0 || (gain == 0 && other.bits % 2 == 0)) {
      best = candidate;
    }
  }
  return best;
}

TEST(BFloat16, RoundsOnceToTheNearest) {
  for_many_values(0xffff0000u, [](double value) {
    const BFloat16 stored(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<double>(stored)));
    } else {
      ASSERT_EQ(static_cast<double>(stored), nearest(value, stored)) << value;
    }
  });
}

// The compiler's own type is the definition.
__extension__ using CompilersHalf = _Float16;

TEST(Float16, RoundsAsTheCompilersTypeDoes) {
  for_many_values(0xffffe000u, [](double value) {
    const auto expected = static_cast<CompilersHalf>(value);
    const Float16 stored(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<double>(stored)));
    } else {
      ASSERT_EQ(stored.bits, std::bit_cast<std::uint16_t>(expected)) << value;
    }
    const auto narrow = static_cast<float>(value);
    if (!std::isnan(narrow)) {
      ASSERT_EQ(Float16(narrow).bits,
                std::bit_cast<std::uint16_t>(static_cast<CompilersHalf>(narrow)))
          << narrow;
    }
  });
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto value =
        static_cast<float>(std::bit_cast<CompilersHalf>(static_cast<std::uint16_t>(bits)));
    const float ours = float16_value(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(ours));
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(ours)) << bits;
    }
  }
}

}  // namespace
}  // namespace tandem
