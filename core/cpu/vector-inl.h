// Vectors of floats over stored fp32 or bf16: loads, stores, loops with tails, exp and sigmoid.
// Compiled once for each Highway target; include after foreach_target.h. A tail runs through the
// same vector code on a padded copy of its elements, so that an element's bits do not depend on the
// lane it falls in, on alignment or on where a shard starts.
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
