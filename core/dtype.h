// Element types, and the conversions that the host makes itself. No code assumes float: a run on
// the reference device stores, accumulates and sums in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "core/float_bits.h"

namespace tandem {

enum class DType : std::uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kU8 };

constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
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
    case DType::kF16:
      return "fp16";
    case DType::kI64:
      return "int64";
    case DType::kI32:
      return "int32";
    case DType::kU8:
      return "uint8";
  }
  return "?";
}

/// A 16-bit floating type; converting to it rounds to nearest, ties to even, and once.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) : bits(bfloat16_bits(value)) {}
  explicit BFloat16(double value) : bits(bfloat16_bits(value)) {}
  explicit operator float() const { return bfloat16_value(bits); }
  explicit operator double() const { return bfloat16_value(bits); }
};

/// IEEE binary16.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) : bits(float16_bits(value)) {}
  explicit Float16(double value) : bits(float16_bits(value)) {}
  explicit operator float() const { return float16_value(bits); }
  explicit operator double() const { return float16_value(bits); }
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
struct DTypeOf<Float16> : std::integral_constant<DType, DType::kF16> {};
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
    case DType::kF16:
      return f(Float16{});
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
