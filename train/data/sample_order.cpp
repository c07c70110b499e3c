#include "train/data/sample_order.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/philox.h"

namespace tandem {

SampleOrder::SampleOrder(std::uint64_t seed, std::int64_t samples, bool shuffle)
    : seed_(seed), samples_(samples), shuffle_(shuffle) {
  ensure(samples >= 1, "an order needs at least one sample");
  const int bits = std::bit_width(static_cast<std::uint64_t>(samples - 1));
  half_bits_ = std::max(1, (bits + 1) / 2);
}

std::int64_t SampleOrder::in_epoch(std::int64_t epoch, std::int64_t index) const {
  if (!shuffle_) {
    return index;
  }
  // The network permutes a slightly larger set. Following its cycle from inside [0, samples) comes
  // back inside, and two different starts never meet: a bijection of the smaller set.
  auto value = static_cast<std::uint64_t>(index);
  do {
    value = scramble(static_cast<std::uint64_t>(epoch), value);
  } while (value >= static_cast<std::uint64_t>(samples_));
  return static_cast<std::int64_t>(value);
}

std::uint64_t SampleOrder::scramble(std::uint64_t epoch, std::uint64_t value) const {
  constexpr std::uint32_t kRounds = 6;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const PhiloxBlock draw = philox_draw(seed_, RandomUse::kOrder, round, (epoch << 32) | right);
    const std::uint64_t mixed = left ^ (draw.x[0] & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

}  // namespace tandem
