#include "train/stop_signal.h"

#include <csignal>
#include <initializer_list>

namespace tandem {

namespace {

volatile std::sig_atomic_t arrived = 0;

void remember(int signal) { arrived = signal; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = remember;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) {
    sigaction(signal, &action, nullptr);
  }
}

int stop_signal() { return arrived; }

}  // namespace tandem
