// Conversions of the 16-bit floating types, on bits, written once for host and device. All round to
// nearest, ties to even, and keep NaN. A double is first narrowed to float with round-to-odd, so
// that the second narrowing sees on which side of a tie the value lay.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/host_device.h"

namespace tandem {

TANDEM_HOST_DEVICE inline std::uint32_t bits_of(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}
TANDEM_HOST_DEVICE inline float float_of(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

/// The float next to `value`, on the side of its last bit that is odd where it is not exact.
TANDEM_HOST_DEVICE inline float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const std::uint32_t u = bits_of(nearest);
  const bool finite = (u & 0x7f800000u) != 0x7f800000u;
  if (!finite || static_cast<double>(nearest) == value) {
    return nearest;
  }
  const bool away = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
  return float_of((away ? u - 1u : u) | 1u);
}

/// bfloat16: the upper half of a float.
TANDEM_HOST_DEVICE inline std::uint16_t bfloat16_bits(float value) {
  const std::uint32_t u = bits_of(value);
  const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  return static_cast<std::uint16_t>(nan ? (u >> 16) | 0x40u
                                        : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
TANDEM_HOST_DEVICE inline std::uint16_t bfloat16_bits(double value) {
  return bfloat16_bits(round_to_odd(value));
}
TANDEM_HOST_DEVICE inline float bfloat16_value(std::uint16_t bits) {
  return float_of(static_cast<std::uint32_t>(bits) << 16);
}

/// IEEE binary16: 5 bits of exponent, 10 of mantissa, subnormals below 2^-14, infinity from 65520.
TANDEM_HOST_DEVICE inline std::uint16_t float16_bits(float value) {
#ifdef __CUDA_ARCH__
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const std::uint32_t u = bits_of(value);
  const std::uint32_t magnitude = u & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 65536
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // 2^-14: the sum with 0.5 rounds to a multiple of 2^-24
    half = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  } else {
    half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(((u >> 16) & 0x8000u) | half);
#endif
}
TANDEM_HOST_DEVICE inline std::uint16_t float16_bits(double value) {
  return float16_bits(round_to_odd(value));
}
TANDEM_HOST_DEVICE inline float float16_value(std::uint16_t bits) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
  if (magnitude >= 0x7c00u << 13) {
    return float_of(sign | 0x7f800000u | magnitude);
  }
  // The exponent's bias moves by a product, which makes numbers of subnormals, too.
  return float_of(sign | bits_of(float_of(magnitude) * 0x1p112f));
#endif
}

}  // namespace tandem
