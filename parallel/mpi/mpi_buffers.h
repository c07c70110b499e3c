// What a group of processes reserves for its messages, where a plan of memory can count it too.
#pragma once

#include <cstddef>

namespace tandem {

/// The announcement's place in a message; data begins at a cache line behind it.
inline constexpr std::size_t kMpiHeaderBytes = 192;
/// Data up to this size travels inside the announcement.
inline constexpr std::size_t kMpiInlineBytes = 8 * 1024;
inline constexpr std::size_t kMpiSlotBytes = kMpiHeaderBytes + kMpiInlineBytes;
/// What a rank sums, or sends in one message, at a time: small enough to stay in its cache, and to
/// pass before a wait begins to sleep, as it would between the parts of a long message too.
inline constexpr std::size_t kMpiPieceBytes = 256 * 1024;

/// A rank's bytes for a group of so many: a slot from and for every rank, and two pieces of every
/// peer where longer data is reduced.
constexpr std::size_t mpi_group_bytes(int ranks, bool reduces_pieces) {
  const auto count = static_cast<std::size_t>(ranks);
  return count == 1
             ? 0
             : 2 * count * kMpiSlotBytes + (reduces_pieces ? 2 * (count - 1) * kMpiPieceBytes : 0);
}

}  // namespace tandem
