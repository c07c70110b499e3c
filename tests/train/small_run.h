// The config that the tests of the program start from, and what they expect of every run of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/train/process.h"

namespace tandem::test {

/// Two by two ranks on generated text; a step takes milliseconds.
inline constexpr const char* kSmall = R"(name: small
threads: 1
parallel: {tp: 2, dp: 2}
model: {kind: mlp_lm, vocab_size: 32, context: 4, hidden: 16, ffn: 32, layers: 2}
data: {format: synthetic, seq_len: 16}
train: {steps: 5, micro_batch: 2, global_batch: 8, eval_every: 0}
log: {every: 1}
)";

/// build/train with these arguments.
inline std::vector<std::string> train(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TANDEM_TRAIN);
  return arguments;
}

/// Seconds within which a run that does next to nothing is over, on a busy machine and under a
/// sanitizer; where a peer is waited for in vain it would be parallel.timeout_s = 60.
inline constexpr double kSoon = 30.0;

inline void expect_clean_end(const Outcome& outcome) {
  EXPECT_FALSE(outcome.timed_out) << outcome.out << outcome.err;
  EXPECT_LT(outcome.seconds, kSoon);
  EXPECT_THAT(outcome.left_over, testing::IsEmpty());
}

}  // namespace tandem::test
