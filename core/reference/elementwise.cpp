#include <cmath>
#include <numbers>

#include "core/parallel_for.h"
#include "core/philox.h"
#include "core/reference/elements.h"
#include "core/reference/kernels.h"

namespace tandem::reference {
namespace {

/// Gelu in the tanh form (Hendrycks & Gimpel 2016): x/2 * (1 + tanh(u)),
/// u = sqrt(2/pi) * (x + 0.044715 x^3).
constexpr double kGeluCubic = 0.044715;
const double kGeluScale = std::sqrt(2.0 / std::numbers::pi);

double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(kGeluScale * (x + kGeluCubic * x * x * x)));
}

double gelu_slope(double x) {
  const double t = std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
  const double du = kGeluScale * (1.0 + 3.0 * kGeluCubic * x * x);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * du;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// 1 / (1 - p) where dropout keeps the element, else 0.
class DropoutFactor {
 public:
  DropoutFactor(const Dropout& dropout, const Tensor& row_keys)
      : dropout_(dropout),
        keys_(dropout.p > 0.0 ? row_keys.as<std::int64_t>() : nullptr),
        threshold_(dropout_threshold(dropout.p)) {}

  double operator()(std::int64_t row, std::int64_t column) const {
    if (keys_ == nullptr) {
      return 1.0;
    }
    const PhiloxBlock draws = dropout_draws(dropout_.seed, dropout_.update, dropout_.layer,
                                            keys_[row], static_cast<std::uint32_t>(column / 4));
    return draws.x[column % 4] >= threshold_ ? 1.0 / (1.0 - dropout_.p) : 0.0;
  }

 private:
  Dropout dropout_;
  const std::int64_t* keys_;
  std::uint32_t threshold_;
};

/// Calls f(row, column) for every element of [rows, columns].
template <typename F>
void for_each(int threads, std::int64_t rows, std::int64_t columns, const F& f) {
  parallel_for(threads, rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        f(r, c);
      }
    }
  });
}

}  // namespace

void cast(const Tensor& from, const Tensor& to, int threads) {
  for_each(threads, from.numel(), 1,
           [&](std::int64_t i, std::int64_t) { store(to, i, load(from, i)); });
}

void activation_forward(const ActivationForward& args, int threads) {
  const std::int64_t n = args.out.dim(1);
  for_each(threads, args.out.dim(0), n, [&](std::int64_t r, std::int64_t c) {
    const std::int64_t i = r * n + c;
    switch (args.kind) {
      case Activation::kGelu:
        return store(args.out, i, gelu(load(args.pre, i)));
      case Activation::kRelu:
        // Not max(): NaN must pass.
        return store(args.out, i, load(args.pre, i) <= 0.0 ? 0.0 : load(args.pre, i));
      case Activation::kSwiglu: {
        const double gate = load(args.pre, 2 * r * n + c);
        const double up = load(args.pre, 2 * r * n + n + c);
        return store(args.out, i, gate * sigmoid(gate) * up);
      }
    }
  });
}

void activation_backward(const ActivationBackward& args, int threads) {
  const std::int64_t n = args.d_out.dim(1);
  for_each(threads, args.d_out.dim(0), n, [&](std::int64_t r, std::int64_t c) {
    const std::int64_t i = r * n + c;
    const double d_out = load(args.d_out, i);
    switch (args.kind) {
      case Activation::kGelu:
        return store(args.d_pre, i, d_out * gelu_slope(load(args.pre, i)));
      case Activation::kRelu:
        return store(args.d_pre, i, load(args.pre, i) <= 0.0 ? 0.0 : d_out);
      case Activation::kSwiglu: {
        const std::int64_t gate_at = 2 * r * n + c, up_at = gate_at + n;
        const double gate = load(args.pre, gate_at), up = load(args.pre, up_at);
        const double s = sigmoid(gate);
        store(args.d_pre, gate_at, d_out * up * s * (1.0 + gate * (1.0 - s)));
        return store(args.d_pre, up_at, d_out * gate * s);
      }
    }
  });
}

void bias_dropout_add(const BiasDropoutAdd& args, int threads) {
  const std::int64_t n = args.out.dim(1);
  const DropoutFactor factor(args.dropout, args.row_keys);
  for_each(threads, args.out.dim(0), n, [&](std::int64_t r, std::int64_t c) {
    const std::int64_t i = r * n + c;
    const double bias = args.bias.absent() ? 0.0 : load(args.bias, c);
    const double kept = factor(r, c);
    // A dropped element is zero, not NaN * 0.
    const double branch = kept == 0.0 ? 0.0 : (load(args.branch, i) + bias) * kept;
    store(args.out, i, load(args.residual, i) + branch);
  });
}

void dropout_backward(const DropoutBackward& args, int threads) {
  const std::int64_t n = args.d_in.dim(1);
  const DropoutFactor factor(args.dropout, args.row_keys);
  for_each(threads, args.d_in.dim(0), n, [&](std::int64_t r, std::int64_t c) {
    const double kept = factor(r, c);
    store(args.d_in, r * n + c, kept == 0.0 ? 0.0 : load(args.d_out, r * n + c) * kept);
  });
}

}  // namespace tandem::reference
