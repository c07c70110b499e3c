#include <algorithm>
#include <cmath>

#include "core/cpu/dispatch.h"
#include "core/cpu/kernels.h"

// From here on this file is compiled once for each target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/norm.cpp"
#include "hwy/foreach_target.h"
#include "core/cpu/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

/// Four vectors of partial sums, so that additions need not wait for each other.
template <typename Term>
HWY_INLINE float sum_over(std::int64_t n, const Term& term) {
  V a = hn::Zero(kFloats), b = a, c = a, d = a;
  const auto step = static_cast<std::int64_t>(lanes());
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    a = hn::Add(a, term(i, Whole{}));
    b = hn::Add(b, term(i + step, Whole{}));
    c = hn::Add(c, term(i + 2 * step, Whole{}));
    d = hn::Add(d, term(i + 3 * step, Whole{}));
  }
  for_vectors(i, n, [&](std::int64_t at, auto part) HWY_ATTR {
    a = hn::Add(a, select(term(at, part), hn::Zero(kFloats), part));
  });
  return sum_of_lanes(hn::Add(hn::Add(a, b), hn::Add(c, d)));
}

template <typename T>
void norm_row(const NormForward& args, std::int64_t r) {
  const std::int64_t n = args.x.dim(1);
  const T* x = args.x.as<T>() + r * n;
  T* y = args.y.as<T>() + r * n;
  const T* weight = args.weight.as<T>();
  const T* bias = args.bias.absent() ? nullptr : args.bias.as<T>();
  V mean = hn::Zero(kFloats);
  if (args.kind == NormKind::kLayerNorm) {
    const float sum =
        sum_over(n, [&](std::int64_t i, auto part) HWY_ATTR { return load(x + i, part); });
    args.mean.as<float>()[r] = sum / static_cast<float>(n);
    mean = hn::Set(kFloats, args.mean.as<float>()[r]);
  }
  const float squares = sum_over(n, [&](std::int64_t i, auto part) HWY_ATTR {
    const V centred = hn::Sub(load(x + i, part), mean);
    return hn::Mul(centred, centred);
  });
  const double variance = static_cast<double>(squares) / static_cast<double>(n);
  const auto rstd = static_cast<float>(1.0 / std::sqrt(variance + args.eps));
  args.rstd.as<float>()[r] = rstd;
  for_vectors(0, n, [&](std::int64_t i, auto part) HWY_ATTR {
    const V scaled = hn::Mul(hn::Sub(load(x + i, part), mean), hn::Set(kFloats, rstd));
    const V b = bias == nullptr ? hn::Zero(kFloats) : load(bias + i, part);
    store(hn::MulAdd(scaled, load(weight + i, part), b), y + i, part);
  });
}

void NormForwardRows(const NormForward& args, std::int64_t begin, std::int64_t end) {
  visit_storage(args.x.dtype, [&](auto* type) HWY_ATTR {
    for (std::int64_t r = begin; r < end; ++r) {
      norm_row<std::remove_pointer_t<decltype(type)>>(args, r);
    }
  });
}

HWY_INLINE V mean_of(const NormBackward& args, std::int64_t r) {
  return args.kind == NormKind::kLayerNorm ? hn::Set(kFloats, args.mean.as<float>()[r])
                                           : hn::Zero(kFloats);
}

/// With x^ = (x - mean) * rstd and g = d_y * weight:
/// d_x = residual + rstd * (g - mean(g) - x^ * mean(g * x^)); RMS norm has no mean(g).
template <typename T>
void norm_input_gradient(const NormBackward& args, std::int64_t r) {
  const std::int64_t n = args.x.dim(1);
  const T* x = args.x.as<T>() + r * n;
  const T* d_y = args.d_y.as<T>() + r * n;
  const T* weight = args.weight.as<T>();
  const T* residual = args.residual.absent() ? nullptr : args.residual.as<T>() + r * n;
  T* d_x = args.d_x.as<T>() + r * n;
  const V mean = mean_of(args, r);
  const V rstd = hn::Set(kFloats, args.rstd.as<float>()[r]);
  const auto normalised = [&](std::int64_t i, auto part)
                              HWY_ATTR { return hn::Mul(hn::Sub(load(x + i, part), mean), rstd); };
  const auto g = [&](std::int64_t i, auto part)
                     HWY_ATTR { return hn::Mul(load(d_y + i, part), load(weight + i, part)); };
  V g_mean = hn::Zero(kFloats);
  if (args.kind == NormKind::kLayerNorm) {
    g_mean = hn::Set(kFloats, sum_over(n, g) / static_cast<float>(n));
  }
  const float gx_sum = sum_over(n, [&](std::int64_t i, auto part) HWY_ATTR {
    return hn::Mul(g(i, part), normalised(i, part));
  });
  const V gx_mean = hn::Set(kFloats, gx_sum / static_cast<float>(n));
  for_vectors(0, n, [&](std::int64_t i, auto part) HWY_ATTR {
    const V centred = hn::Sub(g(i, part), g_mean);
    const V inner = hn::NegMulAdd(normalised(i, part), gx_mean, centred);
    const V before = residual == nullptr ? hn::Zero(kFloats) : load(residual + i, part);
    store(hn::MulAdd(rstd, inner, before), d_x + i, part);
  });
}

void NormInputGradientRows(const NormBackward& args, std::int64_t begin, std::int64_t end) {
  visit_storage(args.x.dtype, [&](auto* type) HWY_ATTR {
    for (std::int64_t r = begin; r < end; ++r) {
      norm_input_gradient<std::remove_pointer_t<decltype(type)>>(args, r);
    }
  });
}

constexpr std::int64_t kColumns = 256;  // of one pass down the rows
constexpr std::int64_t kRows = 64;      // summed apart, so that long sums lose less

/// Columns [begin, begin + count) of d_weight and d_bias; count <= kColumns.
template <typename T>
void norm_weight_gradient(const NormBackward& args, std::int64_t begin, std::int64_t count) {
  const std::int64_t n = args.x.dim(1), rows = args.x.dim(0);
  HWY_ALIGN float weight_sum[kColumns] = {}, bias_sum[kColumns] = {};
  HWY_ALIGN float weight_part[kColumns], bias_part[kColumns];
  for (std::int64_t r0 = 0; r0 < rows; r0 += kRows) {
    std::memset(weight_part, 0, sizeof(weight_part));
    std::memset(bias_part, 0, sizeof(bias_part));
    for (std::int64_t r = r0; r < std::min(rows, r0 + kRows); ++r) {
      const T* x = args.x.as<T>() + r * n + begin;
      const T* d_y = args.d_y.as<T>() + r * n + begin;
      const V mean = mean_of(args, r), rstd = hn::Set(kFloats, args.rstd.as<float>()[r]);
      for_vectors(0, count, [&](std::int64_t i, auto part) HWY_ATTR {
        const V d = load(d_y + i, part);
        const V normalised = hn::Mul(hn::Sub(load(x + i, part), mean), rstd);
        store(hn::MulAdd(d, normalised, load(weight_part + i, part)), weight_part + i, part);
        store(hn::Add(d, load(bias_part + i, part)), bias_part + i, part);
      });
    }
    for_vectors(0, count, [&](std::int64_t i, auto part) HWY_ATTR {
      store(hn::Add(load(weight_sum + i, part), load(weight_part + i, part)), weight_sum + i, part);
      store(hn::Add(load(bias_sum + i, part), load(bias_part + i, part)), bias_sum + i, part);
    });
  }
  const auto write = [&](const Tensor& out, const float* sums) HWY_ATTR {
    float* to = out.as<float>() + begin;
    for_vectors(0, count, [&](std::int64_t i, auto part) HWY_ATTR {
      const V sum = load(sums + i, part);
      store(args.write == Write::kAccumulate ? hn::Add(load(to + i, part), sum) : sum, to + i,
            part);
    });
  };
  write(args.d_weight, weight_sum);
  if (!args.d_bias.absent()) {
    write(args.d_bias, bias_sum);
  }
}

void NormWeightGradientColumns(const NormBackward& args, std::int64_t begin, std::int64_t end) {
  visit_storage(args.x.dtype, [&](auto* type) HWY_ATTR {
    for (std::int64_t c = begin; c < end; c += kColumns) {
      norm_weight_gradient<std::remove_pointer_t<decltype(type)>>(args, c,
                                                                  std::min(kColumns, end - c));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(NormForwardRows);
HWY_EXPORT(NormInputGradientRows);
HWY_EXPORT(NormWeightGradientColumns);

void norm_forward(const NormForward& args, int threads) {
  split(threads, args.x.dim(0), args.x.dim(1), 1, [&](std::int64_t begin, std::int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(NormForwardRows)(args, begin, end);
  });
}

void norm_backward(const NormBackward& args, int threads) {
  const std::int64_t rows = args.x.dim(0), hidden = args.x.dim(1);
  // Threads share columns, not rows: the sums are the same for every thread count.
  split(threads, hidden, rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(NormWeightGradientColumns)(args, begin, end);
  });
  split(threads, rows, hidden, 1, [&](std::int64_t begin, std::int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(NormInputGradientRows)(args, begin, end);
  });
}

}  // namespace tandem::cpu
#endif
