// Vectors of floats over stored fp32, bf16 or fp16: loads, stores, loops with tails, exp and
// sigmoid. Compiled once for each Highway target; include after foreach_target.h. A tail runs
// through the same vector code on a padded copy of its elements, so that an element's bits do not
// depend on the lane it falls in, on alignment or on where a shard starts.
#if defined(TANDEM_CPU_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_CPU_VECTOR_INL_H
#undef TANDEM_CPU_VECTOR_INL_H
#else
#define TANDEM_CPU_VECTOR_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Ints = hn::Rebind<std::int32_t, Floats>;
using Words = hn::Rebind<std::uint32_t, Floats>;
using HalfWords = hn::Rebind<std::uint16_t, Floats>;
using V = hn::Vec<Floats>;

inline constexpr Floats kFloats;
inline constexpr Words kWords;
inline constexpr HalfWords kHalfWords;

HWY_INLINE std::size_t lanes() { return hn::Lanes(kFloats); }

/// How many lanes of a vector are elements: all of them, or the first `count`.
struct Whole {};
struct Part {
  std::size_t count;
};

HWY_INLINE V load(const float* from, Whole) { return hn::LoadU(kFloats, from); }

HWY_INLINE V load(const BFloat16* from, Whole) {
  const auto bits = hn::LoadU(kHalfWords, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::PromoteTo(kWords, bits)));
}

/// As float16_value: Highway's own conversion makes a number of infinity where the processor has no
/// instruction for it.
HWY_INLINE V load(const Float16* from, Whole) {
  const auto bits = hn::LoadU(kHalfWords, reinterpret_cast<const std::uint16_t*>(from));
  const auto word = hn::PromoteTo(kWords, bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(word, hn::Set(kWords, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(word, hn::Set(kWords, 0x7fffu)));
  const auto scaled = hn::Mul(hn::BitCast(kFloats, magnitude), hn::Set(kFloats, 0x1p112f));
  const auto special = hn::Or(magnitude, hn::Set(kWords, 0x7f800000u));
  const auto finite = hn::Lt(hn::BitCast(Ints(), magnitude), hn::Set(Ints(), 0x7c00 << 13));
  const auto value =
      hn::IfThenElse(hn::RebindMask(kWords, finite), hn::BitCast(kWords, scaled), special);
  return hn::BitCast(kFloats, hn::Or(sign, value));
}

/// Lanes beyond the elements are zero.
template <typename T>
HWY_INLINE V load(const T* from, Part part) {
  T padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(static_cast<void*>(padded), from, part.count * sizeof(T));
  return load(padded, Whole{});
}

HWY_INLINE void store(V value, float* to, Whole) { hn::StoreU(value, kFloats, to); }

/// Rounds to nearest even and keeps NaN, bit for bit as BFloat16(float) does.
HWY_INLINE void store(V value, BFloat16* to, Whole) {
  const auto u = hn::BitCast(kWords, value);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(kWords, 1u));
  const auto rounded = hn::Add(u, hn::Add(odd, hn::Set(kWords, 0x7fffu)));
  const auto quiet = hn::Or(u, hn::Set(kWords, 0x400000u));
  const auto nan = hn::RebindMask(kWords, hn::IsNaN(value));
  const auto upper = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
  const auto narrow = hn::DemoteTo(kHalfWords, hn::BitCast(Ints(), upper));
  hn::StoreU(narrow, kHalfWords, reinterpret_cast<std::uint16_t*>(to));
}

/// Bit for bit as Float16(float) does.
HWY_INLINE void store(V value, Float16* to, Whole) {
  const auto u = hn::BitCast(kWords, value);
  const auto sign = hn::ShiftRight<16>(hn::And(u, hn::Set(kWords, 0x80000000u)));
  const auto magnitude = hn::And(u, hn::Set(kWords, 0x7fffffffu));
  const auto upper = hn::ShiftRight<13>(magnitude);
  const auto odd = hn::And(upper, hn::Set(kWords, 1u));
  const auto normal =
      hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(kWords, (112u << 23) - 0xfffu)), odd));
  const V half = hn::Set(kFloats, 0.5f);
  const auto subnormal =
      hn::Sub(hn::BitCast(kWords, hn::Add(hn::BitCast(kFloats, magnitude), half)),
              hn::BitCast(kWords, half));
  const auto nan = hn::Or(hn::Set(kWords, 0x7e00u), hn::And(upper, hn::Set(kWords, 0x3ffu)));
  const auto below = [&](std::int32_t limit) {
    return hn::RebindMask(kWords, hn::Lt(hn::BitCast(Ints(), magnitude), hn::Set(Ints(), limit)));
  };
  const auto finite = hn::IfThenElse(below(0x38800000), subnormal, normal);
  const auto special = hn::IfThenElse(below(0x7f800001), hn::Set(kWords, 0x7c00u), nan);
  const auto word = hn::Or(sign, hn::IfThenElse(below(0x47800000), finite, special));
  const auto narrow = hn::DemoteTo(kHalfWords, hn::BitCast(Ints(), word));
  hn::StoreU(narrow, kHalfWords, reinterpret_cast<std::uint16_t*>(to));
}

template <typename T>
HWY_INLINE void store(V value, T* to, Part part) {
  T padded[HWY_MAX_BYTES / sizeof(float)];
  store(value, padded, Whole{});
  std::memcpy(static_cast<void*>(to), padded, part.count * sizeof(T));
}

/// `value` in the lanes that are elements, `other` beyond them.
HWY_INLINE V select(V value, V, Whole) { return value; }
HWY_INLINE V select(V value, V other, Part part) {
  return hn::IfThenElse(hn::FirstN(kFloats, part.count), value, other);
}

/// Calls body(i, Whole or Part) for vectors that start at begin, begin + lanes, ...
template <typename Body>
HWY_INLINE void for_vectors(std::int64_t begin, std::int64_t end, const Body& body) {
  const auto step = static_cast<std::int64_t>(lanes());
  std::int64_t i = begin;
  for (; i + step <= end; i += step) {
    body(i, Whole{});
  }
  if (i < end) {
    body(i, Part{static_cast<std::size_t>(end - i)});
  }
}

HWY_INLINE float sum_of_lanes(V v) { return hn::GetLane(hn::SumOfLanes(kFloats, v)); }

/// e^x for x in [-87.3, 88]; NaN passes. Cody-Waite reduction and the Cephes polynomial, 2 ulp.
HWY_INLINE V exp_bounded(V x) {
  const V q = hn::Round(hn::Mul(x, hn::Set(kFloats, 1.44269504088896341f)));
  V r = hn::MulAdd(q, hn::Set(kFloats, -0.693359375f), x);
  r = hn::MulAdd(q, hn::Set(kFloats, 2.12194440e-4f), r);
  V p = hn::MulAdd(hn::Set(kFloats, 1.9875691500e-4f), r, hn::Set(kFloats, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(kFloats, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(kFloats, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(kFloats, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(kFloats, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(kFloats, 1.0f));
  const auto exponent = hn::Add(hn::ConvertTo(Ints(), q), hn::Set(Ints(), 127));
  return hn::Mul(p, hn::BitCast(kFloats, hn::ShiftLeft<23>(exponent)));
}

/// Clamps; NaN passes, because Min and Max return their second argument if either is NaN.
HWY_INLINE V clamp(V x, float low, float high) {
  return hn::Min(hn::Set(kFloats, high), hn::Max(hn::Set(kFloats, low), x));
}

/// e^x for any x <= 88: zero below -87.3, NaN passes.
HWY_INLINE V exp(V x) {
  const V y = exp_bounded(clamp(x, -87.3f, 88.0f));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(kFloats, -87.3f)), y);
}

/// s = 1 / (1 + e^-x) and 1 - s, which a subtraction would lose for large x.
struct Sigmoid {
  V s, rest;
};

/// x in [-87.3, 87.3].
HWY_INLINE Sigmoid sigmoid_bounded(V x) {
  const V one = hn::Set(kFloats, 1.0f);
  const V e = exp_bounded(hn::Neg(x));
  const V s = hn::Div(one, hn::Add(one, e));
  return {s, hn::Mul(e, s)};
}

/// Any x; below -87.3, s stays at about 1e-38.
HWY_INLINE Sigmoid sigmoid(V x) { return sigmoid_bounded(clamp(x, -87.3f, 87.3f)); }

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
