// What a rank says of itself at the start of a collective, and the words in which a group that
// disagrees, or waits in vain, is reported. Both kinds of communicator check and speak alike.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "parallel/ledger.h"

namespace tandem {

/// Plain bytes: sent to other processes as it is.
struct Announcement {
  LedgerEntry entry;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
  /// all_to_all, whose counts may differ by rank: elements sent to the rank that reads this.
  std::int64_t sent_to_reader = 0;
};

/// Whether two ranks make the same call: group, sequence, operation, type, count, reduction, root.
bool agree(const Announcement& a, const Announcement& b);

/// "{0, 2}"
std::string to_string(std::span<const int> ranks);

/// One line per rank of what it called; `ranks` are global and in the order of `calls`.
std::string disagreement(std::span<const int> ranks, std::span<const Announcement> calls);

/// Who has not arrived (global ranks) at `entry` after `seconds`.
std::string time_out(const LedgerEntry& entry, std::span<const int> ranks,
                     std::span<const int> missing, double seconds);

/// The same where the device only knows that `entry` does not end.
std::string not_complete(const LedgerEntry& entry, std::span<const int> ranks, double seconds);

}  // namespace tandem
