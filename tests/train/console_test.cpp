#include "train/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace tandem {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(Console, CountsWhatLiesBetweenStepsInTheTimeLeft) {
  ::testing::internal::CaptureStdout();
  Console console(/*visible=*/true, /*last_step=*/100000, /*every=*/1);
  StepResult step;
  step.seconds = 1e-6;
  for (step.step = 1; step.step <= 2; ++step.step) {
    console.step(step, {});
    // As long as an evaluation takes: of 2 steps in 40 ms or more, 99998 are left.
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
  }
  const std::string lines = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(lines, HasSubstr("step      1/100000 "));
  EXPECT_THAT(lines.substr(0, lines.find('\n')), EndsWith("  0 s left"));
  EXPECT_THAT(lines, ::testing::ContainsRegex("step      2/100000 .* min .* s left|.* h .* left"));
}

TEST(Console, SaysWhatARunTookBesideItsSteps) {
  EXPECT_EQ(duration_text(65.0), "1 min 05 s");
  EXPECT_EQ(duration_text(3.0, 39.0), "3 s (39 s with evaluations and checkpoints)");
  EXPECT_EQ(duration_text(3.0, 3.9), "3 s");
  EXPECT_EQ(duration_text(3600.0, 3900.0), "1 h 00 min");
}

}  // namespace
}  // namespace tandem
