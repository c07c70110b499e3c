#include <algorithm>
#include <array>

#include "core/cpu/dispatch.h"
#include "core/cpu/kernels.h"
#include "core/host_memory.h"
#include "core/philox.h"

// From here on this file is compiled once for each target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/dropout.cpp"
#include "hwy/foreach_target.h"
#include "core/cpu/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

constexpr std::int64_t kChunk = 256;  // columns whose factors are drawn at once

/// 1 / (1 - p) where dropout keeps columns [begin, begin + count) of a row, else 0; begin is a
/// multiple of four.
void draw_factors(const Dropout& dropout, std::int64_t row_key, std::int64_t begin,
                  std::int64_t count, float* factors) {
  const std::uint32_t threshold = dropout_threshold(dropout.p);
  const auto kept = static_cast<float>(1.0 / (1.0 - dropout.p));
  for (std::int64_t c = 0; c < count; c += 4) {
    const PhiloxBlock draws = dropout_draws(dropout.seed, dropout.update, dropout.layer, row_key,
                                            static_cast<std::uint32_t>((begin + c) / 4));
    for (std::int64_t lane = 0; lane < std::min<std::int64_t>(4, count - c); ++lane) {
      factors[c + lane] = draws.x[lane] >= threshold ? kept : 0.0f;
    }
  }
}

/// Zero where the factor is zero, also for NaN and infinity.
HWY_INLINE V apply(V value, V factor) {
  return hn::IfThenZeroElse(hn::Eq(factor, hn::Zero(kFloats)), hn::Mul(value, factor));
}

/// Calls body(first column, count, factors) for chunks of a row.
template <typename Body>
HWY_INLINE void for_chunks(const Dropout& dropout, std::int64_t row_key, std::int64_t columns,
                           const Body& body) {
  std::array<float, kChunk> factors;
  for (std::int64_t c = 0; c < columns; c += kChunk) {
    const std::int64_t count = std::min(kChunk, columns - c);
    draw_factors(dropout, row_key, c, count, factors.data());
    body(c, count, factors.data());
  }
}

template <typename T>
void add_row(const T* branch, const T* bias, const T* residual, T* out, std::int64_t n) {
  for_vectors(0, n, [&](std::int64_t i, auto part) HWY_ATTR {
    const V b = bias == nullptr ? hn::Zero(kFloats) : load(bias + i, part);
    store(hn::Add(load(residual + i, part), hn::Add(load(branch + i, part), b)), out + i, part);
  });
}

template <typename T>
void add_row_dropped(const T* branch, const T* bias, const T* residual, T* out,
                     const float* factors, std::int64_t n) {
  for_vectors(0, n, [&](std::int64_t i, auto part) HWY_ATTR {
    const V b = bias == nullptr ? hn::Zero(kFloats) : load(bias + i, part);
    const V kept = apply(hn::Add(load(branch + i, part), b), load(factors + i, part));
    store(hn::Add(load(residual + i, part), kept), out + i, part);
  });
}

void BiasDropoutAddRows(const BiasDropoutAdd& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = args.out.dim(1);
  visit_storage(args.out.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* bias = args.bias.absent() ? nullptr : args.bias.as<T>();
    for (std::int64_t r = begin; r < end; ++r) {
      const T* branch = args.branch.as<T>() + r * n;
      const T* residual = args.residual.as<T>() + r * n;
      T* out = args.out.as<T>() + r * n;
      if (args.dropout.p == 0.0) {
        add_row(branch, bias, residual, out, n);
        continue;
      }
      for_chunks(args.dropout, args.row_keys.as<std::int64_t>()[r], n,
                 [&](std::int64_t c, std::int64_t count, const float* factors) HWY_ATTR {
                   add_row_dropped(branch + c, bias == nullptr ? nullptr : bias + c, residual + c,
                                   out + c, factors, count);
                 });
    }
  });
}

template <typename T>
void scale_row(const T* in, T* out, const float* factors, std::int64_t n) {
  for_vectors(0, n, [&](std::int64_t i, auto part) HWY_ATTR {
    store(apply(load(in + i, part), load(factors + i, part)), out + i, part);
  });
}

void DropoutBackwardRows(const DropoutBackward& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = args.d_in.dim(1);
  visit_storage(args.d_in.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    for (std::int64_t r = begin; r < end; ++r) {
      const T* in = args.d_out.as<T>() + r * n;
      T* out = args.d_in.as<T>() + r * n;
      for_chunks(args.dropout, args.row_keys.as<std::int64_t>()[r], n,
                 [&](std::int64_t c, std::int64_t count, const float* factors)
                     HWY_ATTR { scale_row(in + c, out + c, factors, count); });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(BiasDropoutAddRows);
HWY_EXPORT(DropoutBackwardRows);

void bias_dropout_add(const BiasDropoutAdd& args, int threads) {
  split(threads, args.out.dim(0), args.out.dim(1), 1,
        [&](std::int64_t begin, std::int64_t end, int) {
          HWY_DYNAMIC_DISPATCH(BiasDropoutAddRows)(args, begin, end);
        });
}

void dropout_backward(const DropoutBackward& args, int threads) {
  if (args.dropout.p == 0.0) {
    if (args.d_in.data != args.d_out.data) {
      copy_host(args.d_out, args.d_in);
    }
    return;
  }
  split(threads, args.d_in.dim(0), args.d_in.dim(1), 1,
        [&](std::int64_t begin, std::int64_t end, int) {
          HWY_DYNAMIC_DISPATCH(DropoutBackwardRows)(args, begin, end);
        });
}

}  // namespace tandem::cpu
#endif
