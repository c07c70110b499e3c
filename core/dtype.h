// Element types, and the conversions that the host makes itself. No code assumes float: a run on
// the reference device stores, accumulates and sums in double.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"

namespace tandem {

enum class DType : std::uint8_t { kF64, kF32, kBF16, kI64, kI32, kU8 };

constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::kF64:
      return "fp64";
    case DType::kF32:
      return "fp32";
    case DType::kBF16:
      return "bf16";
    case DType::kI64:
      return "int64";
    case DType::kI32:
      return "int32";
    case DType::kU8:
      return "uint8";
  }
  return "?";
}

/// bfloat16: the upper half of an IEEE float. Converting rounds to nearest, ties to even; NaN stays
/// NaN (a carry out of the mantissa must not turn it into infinity).
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<std::uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  /// One rounding: a double is first narrowed to float with round-to-odd, so that the second
  /// narrowing sees on which side of a tie the value lay.
  explicit BFloat16(double value) : BFloat16(round_to_odd(value)) {}
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  explicit operator double() const { return static_cast<float>(*this); }

 private:
  static float round_to_odd(double value) {
    const auto nearest = static_cast<float>(value);
    if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) {
      return nearest;
    }
    auto u = std::bit_cast<std::uint32_t>(nearest);
    if (std::abs(static_cast<double>(nearest)) > std::abs(value)) {
      --u;  // towards zero, so that the lost part is known to lie above
    }
    return std::bit_cast<float>(u | 1u);
  }
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::kF64> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::kF32> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::kBF16> {};
template <>
struct DTypeOf<std::int64_t> : std::integral_constant<DType, DType::kI64> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::kI32> {};
template <>
struct DTypeOf<std::uint8_t> : std::integral_constant<DType, DType::kU8> {};

/// Calls `f(T{})` with the floating type that `type` names; throws InternalError for integers.
template <typename F>
decltype(auto) visit_floating(DType type, F&& f) {
  switch (type) {
    case DType::kF64:
      return f(double{});
    case DType::kF32:
      return f(float{});
    case DType::kBF16:
      return f(BFloat16{});
    default:
      throw InternalError("not a floating type: " + std::string(name_of(type)));
  }
}

/// The types of one run. storage: weights and activations; main: masters, main gradients and
/// optimizer state; sum: accumulators of reductions and row statistics.
struct Precision {
  DType storage = DType::kF32;
  DType main = DType::kF32;
  DType sum = DType::kF32;
};

}  // namespace tandem
