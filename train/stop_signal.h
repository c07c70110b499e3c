// Signals that ask a run to stop after the step it is in: SIGTERM, SIGINT, SIGUSR1, SIGUSR2.
#pragma once

#include <array>
#include <csignal>

namespace tandem {

/// In the order in which they travel beside a step's token count.
inline constexpr std::array<int, 4> kStopSignals = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

/// From now on these signals only set a flag. Process-wide, as signals are.
void catch_stop_signals();
/// The signal that arrived, 0 for none.
int stop_signal();

}  // namespace tandem
