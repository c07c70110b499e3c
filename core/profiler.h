// Named ranges around the phases of a step. A range costs a pointer test when profiling is off;
// when on it is shown in NVTX's domain `tandem` (where the header was found at build time).
#pragma once

#include <string_view>

namespace tandem {

/// One per rank, in its RankContext.
class Profiler {
 public:
  explicit Profiler(bool nvtx);

  void begin(std::string_view name);
  void end();

 private:
  bool nvtx_;
};

/// A range that lasts as long as the object. `profiler` may be nullptr.
class ProfileRange {
 public:
  ProfileRange(Profiler* profiler, std::string_view name) : profiler_(profiler) {
    if (profiler_ != nullptr) {
      profiler_->begin(name);
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
