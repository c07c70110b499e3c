// What a rank is doing, written by the rank at every collective and readable by any thread at any
// time: how far it is in each of its groups, its last collectives, whether it is inside one, and
// the profiler range it is in. All that is said of a rank that hangs comes from here.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/open_ranges.h"
#include "parallel/announcement.h"

namespace tandem {

/// One collective as its rank saw it; times in seconds on the clock of RankStatus::now.
struct CallRecord {
  Announcement call;
  std::int32_t group = 0;  ///< index into RankStatus::groups
  bool under_way = false;  ///< the rank is inside it
  double entered = 0.0;
  double left = 0.0;
  double usual = 0.0;  ///< seconds that calls of this label took so far; 0: too few to say
};

struct GroupStatus {
  std::string name;
  std::vector<int> ranks;     ///< global
  std::int32_t instance = 0;  ///< of groups with the same name and ranks
  std::uint64_t calls = 0;    ///< entered so far

  bool same_group(const GroupStatus& other) const {
    return instance == other.instance && name == other.name && ranks == other.ranks;
  }
};

/// A snapshot of one rank.
struct RankStatus {
  int rank = 0;
  std::int64_t step = 0;  ///< of training; 0 outside
  bool ended = false;     ///< it makes no more calls
  double now = 0.0;
  std::string inside;  ///< the innermost range
  std::vector<GroupStatus> groups;
  std::vector<CallRecord> last;  ///< up to eight, oldest first

  /// The collective that it is inside; nullptr for none.
  const CallRecord* under_way() const {
    return !last.empty() && last.back().under_way ? &last.back() : nullptr;
  }
};

/// As bytes for another process of the same program, and back. `decode` throws std::out_of_range
/// for bytes that are no status.
std::string encode(const RankStatus& status);
RankStatus decode(std::span<const char> bytes);

class FlightRecorder {
 public:
  static constexpr std::size_t kKept = 8;

  explicit FlightRecorder(int rank);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// A group whose calls are told under the returned number.
  int add_group(const std::string& name, const std::vector<int>& ranks);
  /// `blocks`: the rank is inside the call until it leaves. Neither allocates.
  void enter(int group, const Announcement& call, bool blocks);
  void leave();
  void set_step(std::int64_t step);
  /// The rank makes no more calls.
  void end();
  /// For the rank's profiler.
  OpenRanges& ranges() { return ranges_; }

  RankStatus status() const;

 private:
  /// Seconds that the calls of one label took.
  struct Usual {
    std::uint64_t place = 0;
    std::uint32_t calls = 0;
    float seconds = 0.0f;
  };

  Usual& usual_of(const Announcement& call);

  const int rank_;
  OpenRanges ranges_;
  mutable std::mutex mutex_;
  std::vector<GroupStatus> groups_;
  std::array<CallRecord, kKept> ring_{};
  std::uint64_t calls_ = 0;
  std::int64_t step_ = 0;
  bool ended_ = false;
  std::array<Usual, 256> usual_{};
};

}  // namespace tandem
