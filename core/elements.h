// The arithmetic of one element, written once for host and device: activations, their derivatives,
// the dropout decision and optimizer updates. Kernels of core/cuda are loops
// around these; the host forms are tested against the reference device.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/device.h"
#include "core/philox.h"

namespace tandem {

/// Gelu in the tanh form (Hendrycks & Gimpel 2016): x/2 (1 + tanh(u)),
/// u = sqrt(2/pi) (x + 0.044715 x^3).
inline constexpr double kGeluCubic = 0.044715;
inline constexpr double kGeluScale = 0.79788456080286535588;

template <typename T>
TANDEM_HOST_DEVICE T gelu(T x) {
  const T u = static_cast<T>(kGeluScale) * (x + static_cast<T>(kGeluCubic) * x * x * x);
  return static_cast<T>(0.5) * x * (static_cast<T>(1) + std::tanh(u));
}

template <typename T>
TANDEM_HOST_DEVICE T gelu_slope(T x) {
  const T scale = static_cast<T>(kGeluScale), cubic = static_cast<T>(kGeluCubic);
  const T half = static_cast<T>(0.5), one = static_cast<T>(1);
  const T t = std::tanh(scale * (x + cubic * x * x * x));
  const T sech2 = one - t * t;
  // Far out x^2 overflows where tanh no longer changes.
  const T bend = sech2 == static_cast<T>(0)
                     ? static_cast<T>(0)
                     : half * x * sech2 * scale * (one + static_cast<T>(3) * cubic * x * x);
  return half * (one + t) + bend;
}

template <typename T>
TANDEM_HOST_DEVICE T sigmoid(T x) {
  return static_cast<T>(1) / (static_cast<T>(1) + std::exp(-x));
}

/// Not max(): NaN must pass.
template <typename T>
TANDEM_HOST_DEVICE T relu(T x) {
  return x <= static_cast<T>(0) ? static_cast<T>(0) : x;
}
template <typename T>
TANDEM_HOST_DEVICE T relu_gradient(T x, T d_out) {
  return x <= static_cast<T>(0) ? static_cast<T>(0) : d_out;
}

template <typename T>
TANDEM_HOST_DEVICE T swiglu(T gate, T up) {
  return gate * sigmoid(gate) * up;
}
template <typename T>
struct SwigluGradient {
  T gate, up;
};
template <typename T>
TANDEM_HOST_DEVICE SwigluGradient<T> swiglu_gradient(T gate, T up, T d_out) {
  const T s = sigmoid(gate), one = static_cast<T>(1);
  return {d_out * up * s * (one + gate * (one - s)), d_out * gate * s};
}

/// What dropout multiplies elements with: `factor` where the draw keeps one, else exactly zero
/// whatever the value (not NaN * 0). A threshold of zero keeps everything.
struct DropoutRule {
  std::uint64_t seed = 0;
  std::uint32_t update = 0, layer = 0, threshold = 0;
  float factor = 1.0f;

  DropoutRule() = default;
  explicit DropoutRule(const Dropout& dropout)
      : seed(dropout.seed),
        update(dropout.update),
        layer(dropout.layer),
        threshold(dropout_threshold(dropout.p)),
        factor(static_cast<float>(1.0 / (1.0 - dropout.p))) {}

  /// The draws of columns 4 quad .. 4 quad + 3.
  TANDEM_HOST_DEVICE PhiloxBlock draws(std::int64_t row_key, std::int64_t quad) const {
    return dropout_draws(seed, update, layer, row_key, static_cast<std::uint32_t>(quad));
  }
  TANDEM_HOST_DEVICE float apply(float value, std::uint32_t draw) const {
    return draw >= threshold ? value * factor : 0.0f;
  }
};

/// One element's optimizer state.
struct AdamWState {
  float master, m, v;
};
/// The formula of struct AdamW with everything that depends on no element made once, in double.
struct AdamWRule {
  float lr, beta1, rest1, beta2, rest2, eps, decay, grad_scale, correct_m, correct_v;

  explicit AdamWRule(const AdamW& args)
      : lr(static_cast<float>(args.lr)),
        beta1(static_cast<float>(args.beta1)),
        rest1(static_cast<float>(1.0 - args.beta1)),
        beta2(static_cast<float>(args.beta2)),
        rest2(static_cast<float>(1.0 - args.beta2)),
        eps(static_cast<float>(args.eps)),
        decay(static_cast<float>(args.weight_decay)),
        grad_scale(static_cast<float>(args.grad_scale)),
        correct_m(static_cast<float>(
            1.0 / (1.0 - std::pow(args.beta1, static_cast<double>(args.update))))),
        correct_v(static_cast<float>(
            1.0 / (1.0 - std::pow(args.beta2, static_cast<double>(args.update))))) {}

  TANDEM_HOST_DEVICE AdamWState apply(AdamWState s, float grad) const {
    const float g = grad * grad_scale;
    const float m = beta1 * s.m + rest1 * g;
    const float v = beta2 * s.v + rest2 * (g * g);
    const float step = m * correct_m / (std::sqrt(v * correct_v) + eps);
    return {s.master - lr * (decay * s.master + step), m, v};
  }
};

struct SgdState {
  float master, buffer;
};
struct SgdRule {
  float lr, momentum, decay, grad_scale;
  bool first;

  explicit SgdRule(const Sgd& args)
      : lr(static_cast<float>(args.lr)),
        momentum(static_cast<float>(args.momentum)),
        decay(static_cast<float>(args.weight_decay)),
        grad_scale(static_cast<float>(args.grad_scale)),
        first(args.update == 1) {}

  TANDEM_HOST_DEVICE SgdState apply(SgdState s, float grad) const {
    const float g = grad * grad_scale;
    const float buffer = first ? g : momentum * s.buffer + g;
    return {s.master - lr * (decay * s.master + buffer), buffer};
  }
};

/// Not std::max and std::min: NaN on either side stays.
template <typename T>
TANDEM_HOST_DEVICE T larger(T a, T b) {
  return b > a || b != b ? b : a;
}
template <typename T>
TANDEM_HOST_DEVICE T smaller(T a, T b) {
  return b < a || b != b ? b : a;
}

}  // namespace tandem
