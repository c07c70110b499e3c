// What a rank's collectives were: one entry per call, in order, kept in a ring of fixed size, and
// totals by operation. The words of every report about communication come from here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace tandem {

enum class Collective : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kBarrier,
};
inline constexpr std::size_t kCollectives = 6;
std::string_view name_of(Collective op);

/// A fixed-size copy of a label: entries outlive the strings they were made from, and making one
/// allocates nothing. Longer labels are cut.
class Label {
 public:
  Label() = default;
  explicit Label(std::string_view text);
  std::string_view view() const { return {text_.data(), length_}; }

 private:
  std::array<char, 47> text_{};
  std::uint8_t length_ = 0;
};

struct LedgerEntry {
  Label group;
  std::uint64_t sequence = 0;  ///< per group, from 0
  Collective op = Collective::kBarrier;
  DType dtype = DType::kU8;
  std::int64_t count =
      0;  ///< elements of this rank's tensor (all_gather, reduce_scatter: of the shard)
  Label label;

  /// "tp#124 all_reduce fp32 x 2048 `layers.2.fc2 g.forward`"
  std::string to_string() const;
};

class Ledger {
 public:
  explicit Ledger(std::size_t kept = 64);

  void add(const LedgerEntry& entry);
  /// Calls of `op`, and of all operations, since construction.
  std::uint64_t calls(Collective op) const { return calls_[static_cast<std::size_t>(op)]; }
  std::uint64_t calls() const { return total_; }
  /// Time this rank's host spent inside collectives and could not compute.
  void add_exposed(double seconds) { exposed_seconds_ += seconds; }
  double exposed_seconds() const { return exposed_seconds_; }
  /// The newest entries, oldest first.
  std::vector<LedgerEntry> recent() const;

 private:
  std::vector<LedgerEntry> ring_;
  std::uint64_t total_ = 0;
  double exposed_seconds_ = 0.0;
  std::array<std::uint64_t, kCollectives> calls_{};
};

}  // namespace tandem
