// The clocks of one rank: its computing stream and one stream per group. What the trainer does is
// replayed on them, so that a collective costs what its wait costs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "train/plan/hardware.h"

namespace tandem {

enum class Axis { kTensor, kData, kControl };

/// A collective of some size; its time is known.
struct TimedCollective {
  Axis axis = Axis::kTensor;
  double seconds = 0.0;
};

class Timeline {
 public:
  /// `overlaps`: collectives run beside the computation. Where they hold the host, nothing does,
  /// and each waits besides for slower ranks, `waits` of what was computed since the last.
  explicit Timeline(bool overlaps, double waits = 0.0) : overlaps_(overlaps), waits_(waits) {}

  void run(double seconds) {
    now_ += seconds;
    compute_ += seconds;
    since_ += seconds;
  }
  /// Starts a collective behind what was computed so far, and behind those of its group that were
  /// started before; returns when it will be done.
  double start(const TimedCollective& collective) {
    if (!overlaps_) {
      if (collective.seconds > 0.0) {
        const double seconds = collective.seconds + waits_ * since_;
        now_ += seconds;
        exposed_[index(collective.axis)] += seconds;
        since_ = 0.0;
      }
      return now_;
    }
    double& free = free_[index(collective.axis)];
    free = std::max(free, now_) + collective.seconds;
    return free;
  }
  void wait(Axis axis, double done) {
    if (done > now_) {
      exposed_[index(axis)] += done - now_;
      now_ = done;
    }
  }
  void finish(const TimedCollective& collective) { wait(collective.axis, start(collective)); }
  /// What has passed since `before` passes `times` times more.
  void repeat(const Timeline& before, double times) {
    now_ += times * (now_ - before.now_);
    since_ += times * (since_ - before.since_);
    compute_ += times * (compute_ - before.compute_);
    for (std::size_t i = 0; i < exposed_.size(); ++i) {
      exposed_[i] += times * (exposed_[i] - before.exposed_[i]);
    }
  }

  double now() const { return now_; }
  double compute() const { return compute_; }
  /// For how long the rank waited for collectives of this axis.
  double exposed(Axis axis) const { return exposed_[index(axis)]; }

 private:
  static std::size_t index(Axis axis) { return static_cast<std::size_t>(axis); }

  bool overlaps_;
  double waits_;
  double now_ = 0.0;
  double compute_ = 0.0;
  double since_ = 0.0;  ///< computed after the last collective
  std::array<double, 3> free_{};
  std::array<double, 3> exposed_{};
};

}  // namespace tandem
