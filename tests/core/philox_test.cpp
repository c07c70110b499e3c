#include "core/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

void expect_block(const PhiloxBlock& got, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                  std::uint32_t d) {
  EXPECT_EQ(got.x[0], a);
  EXPECT_EQ(got.x[1], b);
  EXPECT_EQ(got.x[2], c);
  EXPECT_EQ(got.x[3], d);
}

TEST(Philox, KnownAnswersOfRandom123) {
  expect_block(philox4x32({0, 0}, {{0, 0, 0, 0}}), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  const std::uint32_t ones = 0xffffffff;
  expect_block(philox4x32({ones, ones}, {{ones, ones, ones, ones}}), 0x408f276d, 0x41c83b0e,
               0xa20bc7c6, 0x6d5451fd);
  expect_block(
      philox4x32({0xa4093822, 0x299f31d0}, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}),
      0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Philox, DrawsOfOneCoordinateDifferFromAllNeighbours) {
  const auto base = dropout_draws(1, 2, 3, 4, 5);
  EXPECT_EQ(base.x[0], dropout_draws(1, 2, 3, 4, 5).x[0]);
  EXPECT_NE(base.x[0], dropout_draws(2, 2, 3, 4, 5).x[0]) << "seed";
  EXPECT_NE(base.x[0], dropout_draws(1, 3, 3, 4, 5).x[0]) << "update";
  EXPECT_NE(base.x[0], dropout_draws(1, 2, 4, 4, 5).x[0]) << "layer";
  EXPECT_NE(base.x[0], dropout_draws(1, 2, 3, 5, 5).x[0]) << "row";
  EXPECT_NE(base.x[0], dropout_draws(1, 2, 3, 4, 6).x[0]) << "columns";
}

TEST(Philox, NormalsHaveMeanZeroAndVarianceOne) {
  const int blocks = 25000;
  double sum = 0.0, squares = 0.0;
  for (int i = 0; i < blocks; ++i) {
    for (const double z :
         philox_normals(9, RandomUse::kWeights, 1, static_cast<std::uint64_t>(i))) {
      ASSERT_TRUE(std::isfinite(z));
      sum += z;
      squares += z * z;
    }
  }
  EXPECT_NEAR(sum / (4 * blocks), 0.0, 0.02);
  EXPECT_NEAR(squares / (4 * blocks), 1.0, 0.03);
}

}  // namespace
}  // namespace tandem
