#include "core/cpu/dispatch.h"
#include "core/cpu/kernels.h"

// From here on this file is compiled once for each target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/activation.cpp"
#include "hwy/foreach_target.h"
#include "core/cpu/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

// Gelu's tanh form, x/2 * (1 + tanh(u)) with u = sqrt(2/pi) * (x + 0.044715 x^3), equals
// x * sigmoid(2u): one exponential, and no cancellation for negative x.
constexpr float kTwoScale = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kTwoScaleCubic = kTwoScale * 0.044715f;

/// Beyond +-8, sigmoid(2u) is within 4e-22 of 0 or 1; clamping there keeps e^-2u finite, and gelu's
/// far tail out of the denormal numbers, which cost a hundred times as much as others.
HWY_INLINE V gelu_input(V x) { return clamp(x, -8.0f, 8.0f); }

HWY_INLINE Sigmoid gelu_sigmoid(V x, V x2) {
  return sigmoid_bounded(
      hn::Mul(x, hn::MulAdd(hn::Set(kFloats, kTwoScaleCubic), x2, hn::Set(kFloats, kTwoScale))));
}

struct Gelu {
  static HWY_INLINE V value(V x) {
    const V bounded = gelu_input(x);
    return hn::Mul(x, gelu_sigmoid(bounded, hn::Mul(bounded, bounded)).s);
  }
  /// With s = sigmoid(2u): s + x * 2u' * s * (1 - s).
  static HWY_INLINE V gradient(V x, V d_out) {
    const V bounded = gelu_input(x);
    const V x2 = hn::Mul(bounded, bounded);
    const auto [s, rest] = gelu_sigmoid(bounded, x2);
    const V two_du =
        hn::MulAdd(hn::Set(kFloats, 3.0f * kTwoScaleCubic), x2, hn::Set(kFloats, kTwoScale));
    return hn::Mul(d_out, hn::MulAdd(hn::Mul(bounded, two_du), hn::Mul(s, rest), s));
  }
};

struct Relu {
  // By comparison, not Max: NaN must pass.
  static HWY_INLINE V value(V x) { return hn::IfThenZeroElse(hn::Le(x, hn::Zero(kFloats)), x); }
  static HWY_INLINE V gradient(V x, V d_out) {
    return hn::IfThenZeroElse(hn::Le(x, hn::Zero(kFloats)), d_out);
  }
};

template <typename F, typename T>
void forward(const T* pre, T* out, std::int64_t begin, std::int64_t end) {
  for_vectors(begin, end, [&](std::int64_t i, auto part) HWY_ATTR {
    store(F::value(load(pre + i, part)), out + i, part);
  });
}

template <typename F, typename T>
void backward(const T* pre, const T* d_out, T* d_pre, std::int64_t begin, std::int64_t end) {
  for_vectors(begin, end, [&](std::int64_t i, auto part) HWY_ATTR {
    store(F::gradient(load(pre + i, part), load(d_out + i, part)), d_pre + i, part);
  });
}

template <typename T>
void swiglu_forward(const T* pre, T* out, std::int64_t n) {
  for_vectors(0, n, [&](std::int64_t i, auto part) HWY_ATTR {
    const V gate = load(pre + i, part);
    const V silu = hn::Mul(gate, sigmoid(gate).s);
    store(hn::Mul(silu, load(pre + n + i, part)), out + i, part);
  });
}

template <typename T>
void swiglu_backward(const T* pre, const T* d_out, T* d_pre, std::int64_t n) {
  for_vectors(0, n, [&](std::int64_t i, auto part) HWY_ATTR {
    const V gate = load(pre + i, part), up = load(pre + n + i, part);
    const V d = load(d_out + i, part);
    const auto [s, rest] = sigmoid(gate);
    const V one = hn::Set(kFloats, 1.0f);
    const V slope = hn::Mul(s, hn::MulAdd(gate, rest, one));
    store(hn::Mul(hn::Mul(d, up), slope), d_pre + i, part);
    store(hn::Mul(d, hn::Mul(gate, s)), d_pre + n + i, part);
  });
}

void ActivationForwardRows(const ActivationForward& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = args.out.dim(1);
  visit_storage(args.out.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* pre = args.pre.as<T>();
    T* out = args.out.as<T>();
    switch (args.kind) {
      case Activation::kGelu:
        return forward<Gelu>(pre, out, begin * n, end * n);
      case Activation::kRelu:
        return forward<Relu>(pre, out, begin * n, end * n);
      case Activation::kSwiglu:
        for (std::int64_t r = begin; r < end; ++r) {
          swiglu_forward(pre + 2 * r * n, out + r * n, n);
        }
    }
  });
}

void ActivationBackwardRows(const ActivationBackward& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = args.d_out.dim(1);
  visit_storage(args.d_out.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* pre = args.pre.as<T>();
    const T* d_out = args.d_out.as<T>();
    T* d_pre = args.d_pre.as<T>();
    switch (args.kind) {
      case Activation::kGelu:
        return backward<Gelu>(pre, d_out, d_pre, begin * n, end * n);
      case Activation::kRelu:
        return backward<Relu>(pre, d_out, d_pre, begin * n, end * n);
      case Activation::kSwiglu:
        for (std::int64_t r = begin; r < end; ++r) {
          swiglu_backward(pre + 2 * r * n, d_out + r * n, d_pre + 2 * r * n, n);
        }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(ActivationForwardRows);
HWY_EXPORT(ActivationBackwardRows);

void activation_forward(const ActivationForward& args, int threads) {
  split(threads, args.out.dim(0), args.out.dim(1), 1,
        [&](std::int64_t begin, std::int64_t end, int) {
          HWY_DYNAMIC_DISPATCH(ActivationForwardRows)(args, begin, end);
        });
}

void activation_backward(const ActivationBackward& args, int threads) {
  split(threads, args.d_out.dim(0), args.d_out.dim(1), 1,
        [&](std::int64_t begin, std::int64_t end, int) {
          HWY_DYNAMIC_DISPATCH(ActivationBackwardRows)(args, begin, end);
        });
}

}  // namespace tandem::cpu
#endif
