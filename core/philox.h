// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A draw is a pure function of a key and a counter, so initial weights, dropout
// masks and data order are functions of *global* indices: bit-identical for every layout, device
// and thread count. Usable in device code.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/host_device.h"

namespace tandem {

struct PhiloxKey {
  std::uint32_t k0 = 0, k1 = 0;
};
struct PhiloxBlock {
  std::uint32_t x[4];
};

TANDEM_HOST_DEVICE inline PhiloxBlock philox4x32(PhiloxKey key, PhiloxBlock counter) {
  constexpr std::uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  PhiloxBlock c = counter;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = static_cast<std::uint64_t>(kMul0) * c.x[0];
    const std::uint64_t p1 = static_cast<std::uint64_t>(kMul1) * c.x[2];
    c = {{static_cast<std::uint32_t>(p1 >> 32) ^ c.x[1] ^ key.k0, static_cast<std::uint32_t>(p1),
          static_cast<std::uint32_t>(p0 >> 32) ^ c.x[3] ^ key.k1, static_cast<std::uint32_t>(p0)}};
    key.k0 += kWeyl0;
    key.k1 += kWeyl1;
  }
  return c;
}

/// What a stream of draws is for; part of the counter, so that uses never share numbers.
enum class RandomUse : std::uint32_t { kWeights = 1, kDropout = 2, kOrder = 3, kSynthetic = 4 };

/// The key of a seed.
TANDEM_HOST_DEVICE inline PhiloxKey philox_key(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

/// Four draws of block `block` in stream (use, stream).
TANDEM_HOST_DEVICE inline PhiloxBlock philox_draw(std::uint64_t seed, RandomUse use,
                                                  std::uint32_t stream, std::uint64_t block) {
  return philox4x32(philox_key(seed),
                    {{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                      stream, static_cast<std::uint32_t>(use)}});
}

/// The threshold below which a 32-bit draw drops an element: round(p * 2^32), for 0 <= p < 1.
inline std::uint32_t dropout_threshold(double p) {
  return static_cast<std::uint32_t>(std::llround(std::ldexp(p, 32)));
}

/// The four draws for columns 4*quad .. 4*quad+3 of the row with key `row_key` in `layer` at
/// `update`. Column c is kept if draw c % 4 >= dropout_threshold(p). `update` is folded into the
/// key by a Weyl step so that masks of successive updates are unrelated.
TANDEM_HOST_DEVICE inline PhiloxBlock dropout_draws(std::uint64_t seed, std::uint32_t update,
                                                    std::uint32_t layer, std::int64_t row_key,
                                                    std::uint32_t quad) {
  PhiloxKey key = philox_key(seed);
  key.k0 ^= update * 0x9E3779B9u;
  key.k1 += update;
  const auto row = static_cast<std::uint64_t>(row_key);
  return philox4x32(
      key, {{static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(row >> 32) ^ (layer << 16),
             quad, static_cast<std::uint32_t>(RandomUse::kDropout)}});
}

/// Normal deviates by Box-Muller, in double on the host only: rounded once and copied to devices,
/// so that no device's log or cosine decides an initial weight.
inline std::array<double, 4> philox_normals(std::uint64_t seed, RandomUse use, std::uint32_t stream,
                                            std::uint64_t block) {
  const PhiloxBlock u = philox_draw(seed, use, stream, block);
  std::array<double, 4> z;
  for (std::size_t pair = 0; pair < 2; ++pair) {
    // (0, 1]: the logarithm's argument is never zero.
    const double radius =
        std::sqrt(-2.0 * std::log((static_cast<double>(u.x[2 * pair]) + 1.0) * 0x1p-32));
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(u.x[2 * pair + 1]) * 0x1p-32;
    z[2 * pair] = radius * std::cos(angle);
    z[2 * pair + 1] = radius * std::sin(angle);
  }
  return z;
}

}  // namespace tandem
