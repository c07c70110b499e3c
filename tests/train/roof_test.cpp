// What a GPU's speed is held against.
#include "train/roof.h"

#include <gtest/gtest.h>

#include "tests/support/deferred_device.h"

namespace tandem::test {

namespace {

TEST(Roof, KnowsTheDataSheetsOfTheGpusThatTheDriverNames) {
  EXPECT_EQ(datasheet_tflops("cuda: NVIDIA H100 80GB HBM3 (sm_90)", DType::kBF16), 989.4);
  EXPECT_EQ(datasheet_tflops("cuda: NVIDIA H100 PCIe", DType::kBF16), 756.0);
  EXPECT_EQ(datasheet_tflops("cuda: NVIDIA H200", DType::kBF16), 989.4);
  EXPECT_EQ(datasheet_tflops("cuda: NVIDIA A100-SXM4-80GB", DType::kBF16), 312.0);
  EXPECT_EQ(datasheet_tflops("cuda: NVIDIA H100 80GB HBM3", DType::kF32), std::nullopt);
  EXPECT_EQ(datasheet_tflops("cuda: NVIDIA GeForce RTX 4090", DType::kBF16), std::nullopt);
}

TEST(Roof, OfADeviceIsMeasuredThroughItsStreams) {
  const auto device = testing::make_deferred_device(1, 1);
  EXPECT_GT(device_roof(*device, DType::kF32), 1e8);
}

}  // namespace

}  // namespace tandem::test
