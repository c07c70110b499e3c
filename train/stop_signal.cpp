#include "train/stop_signal.h"

#include <atomic>

namespace tandem {

namespace {

// Set in whichever thread the signal interrupts, read by ranks in threads of their own.
std::atomic<int> arrived = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a handler may not wait for a lock");

void remember(int signal) { arrived = signal; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = remember;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : kStopSignals) {
    sigaction(signal, &action, nullptr);
  }
}

int stop_signal() { return arrived; }

}  // namespace tandem
