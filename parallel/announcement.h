// What a rank says of itself at the start of a collective: what it calls, as plain bytes, and a
// digest of it, so that ranks that call different things find out by comparing 16 bytes.
#pragma once

#include <cstdint>
#include <string>

#include "core/device.h"
#include "parallel/ledger.h"

namespace tandem {

/// Equal for equal calls, and in practice for those alone.
struct Digest {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Digest&) const = default;
};

/// Plain bytes: sent to other processes as it is.
struct Announcement {
  LedgerEntry entry;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
  /// all_to_all, whose counts may differ by rank: elements sent to the rank that reads this.
  std::int64_t sent_to_reader = 0;
  Shape shape;  ///< of this rank's tensor; rank 0 for none
  /// Of group, sequence, operation, type, label, reduction, root and, but for all_to_all, count.
  Digest digest;
};

/// `call`'s digest, from its other members.
Digest digest_of(const Announcement& call);

/// Whether two ranks make the same call. Allocates nothing.
inline bool agree(const Announcement& a, const Announcement& b) { return a.digest == b.digest; }

/// "tp#124 all_reduce fp32 [2048, 512] (sum) `layers.2.fc2 g.forward`"
std::string to_string(const Announcement& call);

}  // namespace tandem
