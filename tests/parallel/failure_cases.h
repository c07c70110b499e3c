// What the ranks of a broken world are told: the same on threads and under mpirun. Each body runs
// in a world of its own, on every rank, and says what it threw.
#pragma once

#include "tests/support/ranks.h"

namespace tandem::test {

struct FailureCase {
  std::string name;
  RankBody body;
  /// Whether the text that rank `rank` of `size` was told is right; "" for a rank that threw
  /// nothing.
  std::function<void(int rank, int size, const std::string& text)> check;
};

/// Bodies expect a time-out of kShortTimeout seconds and at least two ranks.
inline constexpr double kShortTimeout = 0.5;
std::vector<FailureCase> failure_cases();

}  // namespace tandem::test
