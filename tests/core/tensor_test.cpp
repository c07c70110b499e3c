#include "core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tandem {
namespace {

TEST(Tensor, SliceKeepsStridesAndIsNotContiguous) {
  std::vector<float> values(12);
  const Tensor x = Tensor::of<float>(values, {3, 4});
  const Tensor columns = x.slice(1, 1, 2);
  EXPECT_EQ(columns.as<float>(), values.data() + 1);
  EXPECT_FALSE(columns.is_contiguous());
  EXPECT_TRUE(x.slice(0, 1, 2).is_contiguous());
  EXPECT_EQ(x.slice(0, 1, 2).as<float>(), values.data() + 4);
  EXPECT_THROW(columns.flat(), InternalError);
  EXPECT_THROW(x.slice(1, 3, 2), InternalError);
  EXPECT_THROW(x.as<double>(), InternalError);
}

TEST(BFloat16, RoundsToNearestEvenOnceAndKeepsNan) {  // B75b
  EXPECT_EQ(static_cast<float>(BFloat16(0.9910f)), 0.9921875f);
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 0x1p-8f)), 1.0f) << "a tie goes to the even side";
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 0x3p-8f)), 1.0f + 0x4p-8f);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(static_cast<float>(BFloat16(3.4e38f))));
  // Just above a tie in double, exactly a tie in float: one rounding goes up, two would go down.
  EXPECT_EQ(static_cast<float>(BFloat16(1.0 + 0x1p-8 + 0x1p-40)), 1.0f + 0x1p-7f);
  EXPECT_EQ(static_cast<float>(BFloat16(-1.0 - 0x1p-8 - 0x1p-40)), -1.0f - 0x1p-7f);
}

}  // namespace
}  // namespace tandem
