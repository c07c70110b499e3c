// What a rank's collectives were: one entry per call, in order, kept in a ring of fixed size, and
// totals by label: calls, bytes and time. The words of every report about communication come from
// here, and what train/traffic.h predicts is held against it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
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
  /// False for bytes that came from elsewhere and are no label.
  bool is_valid() const { return length_ <= text_.size(); }
  bool operator==(const Label&) const = default;

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

/// What a job is at when it communicates. Only a step's traffic follows from config and layout.
enum class JobPhase : std::uint8_t { kOther, kStep, kEvaluation };
std::string_view name_of(JobPhase phase);

/// What collectives of one label are.
struct TrafficKey {
  Label group;
  Label label;
  Collective op = Collective::kBarrier;
  DType dtype = DType::kU8;
  int ranks = 1;  ///< of the group
  JobPhase phase = JobPhase::kOther;

  bool operator==(const TrafficKey&) const = default;
};

/// How much they move. `bytes` is the size as nccl-tests count it: of the tensor that is reduced or
/// broadcast, of the whole that is gathered or scattered.
struct Traffic {
  TrafficKey key;
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;

  bool operator==(const Traffic&) const = default;
};

/// nccl-tests' size of one call on `count` elements as LedgerEntry::count has them.
std::uint64_t traffic_bytes(Collective op, DType dtype, std::int64_t count, int ranks);
/// Bytes that a rank sends for a collective of `bytes`, by a ring or by direct exchange: all_reduce
/// 2 (n - 1) / n of them, all others (n - 1) / n; a broadcast's root (n - 1) times all.
double sent_bytes(Collective op, double bytes, int ranks);

class Ledger {
 public:
  /// Totals of one label.
  struct Line {
    Traffic traffic;
    /// Time that its collectives took: where they hold the host, in calls and waits; on a device,
    /// of the kernels, waiting for peers included.
    double seconds = 0.0;
    /// Of it, the time in which this rank could not compute.
    double exposed_seconds = 0.0;
  };
  using LineNumber = std::size_t;

  explicit Ledger(std::size_t kept = 64);

  /// The phase that calls belong to from here on.
  void set_phase(JobPhase phase) { phase_ = phase; }
  /// `ranks`: size of the entry's group. Returns the place of its label's totals.
  LineNumber add(const LedgerEntry& entry, int ranks);
  /// Time of the collective that was entered in `line`.
  void add_time(LineNumber line, double seconds, double exposed_seconds);

  /// Calls of `op`, and of all operations, since construction.
  std::uint64_t calls(Collective op) const { return calls_[static_cast<std::size_t>(op)]; }
  std::uint64_t calls() const { return total_; }
  std::uint64_t bytes() const { return bytes_; }
  double seconds() const { return seconds_; }
  double exposed_seconds() const { return exposed_seconds_; }
  /// In the order in which labels were first used.
  const std::deque<Line>& lines() const { return lines_; }
  /// The newest entries, oldest first.
  std::vector<LedgerEntry> recent() const;

 private:
  struct Hash {
    std::size_t operator()(const TrafficKey& key) const;
  };

  std::vector<LedgerEntry> ring_;
  std::deque<Line> lines_;  // grows without moving, in small pieces
  std::unordered_map<TrafficKey, LineNumber, Hash> numbers_;
  JobPhase phase_ = JobPhase::kOther;
  std::uint64_t total_ = 0;
  std::uint64_t bytes_ = 0;
  double seconds_ = 0.0;
  double exposed_seconds_ = 0.0;
  std::array<std::uint64_t, kCollectives> calls_{};
};

}  // namespace tandem
