#include "parallel/nccl/stall_watch.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace tandem::nccl {

namespace {

constexpr auto kLook = std::chrono::milliseconds(100);

/// False at once when a stop is asked for.
bool pause(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any nobody;
  std::unique_lock lock(mutex);
  nobody.wait_for(lock, stop, kLook, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace

StallWatch::StallWatch(double timeout_s, std::function<bool()> look,
                       std::function<bool(double seconds)> held)
    : timeout_s_(timeout_s),
      look_(std::move(look)),
      held_(std::move(held)),
      looker_([this](const std::stop_token& stop) { look_on(stop); }),
      watcher_([this](const std::stop_token& stop) { watch_looks(stop); }) {}

void StallWatch::look_on(const std::stop_token& stop) {
  for (bool more = true; more && pause(stop);) {
    looking_since_ = Clock::now();
    more = look_();
    looking_since_ = Clock::time_point();
  }
}

void StallWatch::watch_looks(const std::stop_token& stop) {
  while (pause(stop)) {
    const Clock::time_point since = looking_since_;
    const double seconds = std::chrono::duration<double>(Clock::now() - since).count();
    if (since != Clock::time_point() && seconds > timeout_s_ && held_(seconds)) {
      return;
    }
  }
}

}  // namespace tandem::nccl
