// Named ranges around the phases of a step: for NVIDIA's profilers (NVTX's domain `tandem`, where
// its header was found at build time), for a run's own trace, and, of the outer ones, the time that
// they took. A range costs a pointer test where there is no profiler, and a look at the clock where
// there is one.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/open_ranges.h"
#include "core/trace.h"

namespace tandem {

/// What a range says of itself: "layers.3 g.forward" + "all_reduce", with the bytes it moves or the
/// tokens it computes.
struct RangeName {
  std::string_view name;
  std::string_view detail = {};
  std::int64_t payload = -1;       ///< -1: none
  std::string_view unit = "rows";  ///< of the payload, a literal
};

/// One per rank, in its RankContext.
class Profiler {
 public:
  /// `watched`: is told of every range, for a thread that watches this rank; may be nullptr.
  explicit Profiler(bool nvtx, OpenRanges* watched = nullptr);

  void begin(const RangeName& range);
  void end();

  /// Time of the outer ranges without detail, e.g. "step", "step/micro-batch/forward", in order of
  /// first use. On a device with streams it is the host's.
  struct Phase {
    std::string name;
    std::size_t parent = kNone;  ///< of phases()
    std::uint64_t calls = 0;
    double seconds = 0.0;
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  };
  const std::vector<Phase>& phases() const { return phases_; }
  /// "step/micro-batch/forward"
  std::string path(const Phase& phase) const;

  /// Records ranges from here on; nullptr: no longer. Borrowed.
  void record(TraceRecorder* trace) { trace_ = trace; }
  TraceRecorder* trace() const { return trace_; }
  /// What the calling thread is, in the profiler's list.
  void name_thread(const std::string& name) const;

 private:
  static constexpr std::size_t kTimedDepth = 3;

  void begin_nvtx(const RangeName& range);
  void end_nvtx();

  bool nvtx_;
  OpenRanges* watched_;
  TraceRecorder* trace_ = nullptr;
  std::vector<Phase> phases_;
  std::size_t depth_ = 0;
  struct Open {
    std::size_t phase = Phase::kNone;
    std::chrono::steady_clock::time_point start;
  };
  std::array<Open, kTimedDepth> open_;
};

/// A range that lasts as long as the object. `profiler` may be nullptr.
class ProfileRange {
 public:
  ProfileRange(Profiler* profiler, std::string_view name)
      : ProfileRange(profiler, RangeName{name}) {}
  ProfileRange(Profiler* profiler, const RangeName& range) : profiler_(profiler) {
    if (profiler_ != nullptr) {
      profiler_->begin(range);
    }
  }
  ~ProfileRange() {
    if (profiler_ != nullptr) {
      profiler_->end();
    }
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  Profiler* profiler_;
};

}  // namespace tandem
