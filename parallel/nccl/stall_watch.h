// Looks out for a collective that never ends while the rank's own thread cannot: where a stream's
// queue is full, a launch holds the host until the device goes on, and behind a collective that
// waits for a peer in vain it does not.
//
// One thread looks, a few times a second. What it calls of CUDA may have to wait for a lock that
// the held thread has; a second thread, which calls nothing of CUDA, therefore watches the first.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace tandem::nccl {

class StallWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// `look` is called until it returns false. `held` is called while one call of `look` has lasted
  /// longer than `timeout_s`, until it returns true. Neither may throw.
  StallWatch(double timeout_s, std::function<bool()> look,
             std::function<bool(double seconds)> held);
  /// Waits for a look that is under way.
  ~StallWatch() = default;
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

 private:
  void look_on(const std::stop_token& stop);
  void watch_looks(const std::stop_token& stop);

  const double timeout_s_;
  const std::function<bool()> look_;
  const std::function<bool(double)> held_;
  std::atomic<Clock::time_point> looking_since_;  ///< the epoch: no look is under way
  std::jthread looker_, watcher_;
};

}  // namespace tandem::nccl
