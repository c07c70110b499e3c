// Named ranges around the phases of a step, and names of threads, for NVIDIA's profilers: NVTX's
// domain `tandem`, where its header was found at build time. A range costs a pointer test when
// profiling is off, and next to nothing where no profiler listens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/open_ranges.h"

namespace tandem {

/// What a range says of itself: "layers.3 g.forward" + "all_reduce", with the bytes it moves or the
/// tokens it computes.
struct RangeName {
  std::string_view name;
  std::string_view detail = {};
  std::int64_t payload = -1;  ///< -1: none
};

/// One per rank, in its RankContext.
class Profiler {
 public:
  /// `open`: is told of every range, for a thread that watches this rank; may be nullptr.
  explicit Profiler(bool nvtx, OpenRanges* open = nullptr);

  void begin(const RangeName& range);
  void end();
  /// What the calling thread is, in the profiler's list.
  void name_thread(const std::string& name) const;

 private:
  bool nvtx_;
  OpenRanges* open_;
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
