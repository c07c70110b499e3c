#include "optim/loss_scaler.h"

#include <gtest/gtest.h>

namespace tandem::test {
namespace {

// Start 65536, halve on overflow, double after 1000 clean steps, floor 1.
TEST(LossScaler, HalvesOnOverflowDownToOne) {
  LossScale scale = kFirstLossScale;
  EXPECT_EQ(scale.value, 65536.0);
  for (double expected = 32768.0; expected >= 1.0; expected /= 2.0) {
    scale = after_overflow(scale);
    EXPECT_EQ(scale, (LossScale{expected, 0}));
  }
  EXPECT_EQ(after_overflow(scale), (LossScale{1.0, 0}));
}

TEST(LossScaler, DoublesAfterAThousandCleanStepsInARow) {
  LossScale scale{8.0, 0};
  for (int step = 0; step < 999; ++step) {
    scale = after_clean_step(scale);
  }
  EXPECT_EQ(scale, (LossScale{8.0, 999}));
  EXPECT_EQ(after_clean_step(scale), (LossScale{16.0, 0}));
  EXPECT_EQ(after_clean_step(after_overflow(scale)), (LossScale{4.0, 1}));
}

}  // namespace
}  // namespace tandem::test
