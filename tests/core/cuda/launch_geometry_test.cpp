// Launch geometry without a GPU: every element has a thread, no limit of the hardware is passed,
// and partial sums fit their scratch.
#include "core/cuda/launch_geometry.h"

#include <gtest/gtest.h>

#include <array>

namespace tandem::cuda {
namespace {

// Of every GPU since compute capability 3.0.
constexpr std::int64_t kMaxGridX = 0x7fffffff;
constexpr std::int64_t kMaxGridY = 65535;
constexpr std::int64_t kMaxThreads = 1024;

const std::array<std::int64_t, 9> kSizes = {1,    31,       32,         33,           256,
                                            8192, 16777217, 5000000000, 1000000000000};

TEST(LaunchGeometry, ElementwiseHasAThreadForEachItemUpToAStride) {
  EXPECT_EQ(elementwise(1), (Geometry{1, 256}));
  EXPECT_EQ(elementwise(256), (Geometry{1, 256}));
  EXPECT_EQ(elementwise(257), (Geometry{2, 256}));
  EXPECT_EQ(elementwise(0).blocks, 1);
  for (const std::int64_t items : kSizes) {
    const Geometry geometry = elementwise(items);
    EXPECT_LE(geometry.blocks, kMaxBlocks);
    EXPECT_TRUE(geometry.blocks == kMaxBlocks || geometry.blocks * geometry.threads >= items);
    EXPECT_LT((geometry.blocks - 1) * geometry.threads, items);
  }
}

TEST(LaunchGeometry, RowsHaveWholeWarpsAndNoMoreThreadsThanTheKernelsWereBuiltFor) {
  EXPECT_EQ(row_blocks(5, 1), (Geometry{5, 32}));
  EXPECT_EQ(row_blocks(5, 128), (Geometry{5, 32}));
  EXPECT_EQ(row_blocks(5, 129), (Geometry{5, 64}));
  EXPECT_EQ(row_blocks(5, 8192), (Geometry{5, 512}));
  EXPECT_EQ(row_blocks(5, 0), (Geometry{5, 32}));
  for (const std::int64_t rows : kSizes) {
    for (const std::int64_t packs : kSizes) {
      const Geometry geometry = row_blocks(rows, packs);
      EXPECT_LE(geometry.blocks, kMaxGridX);
      EXPECT_EQ(geometry.threads % kWarp, 0);
      EXPECT_LE(geometry.threads, kRowThreads);
      EXPECT_LE(geometry.threads, kMaxThreads);
    }
  }
}

TEST(LaunchGeometry, ColumnChunksCoverAllRowsOnceAndFitTheScratch) {
  for (const std::int64_t rows :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, std::int64_t{64}, std::int64_t{65},
        std::int64_t{4096}, std::int64_t{100000}}) {
    for (const std::int64_t columns : {1, 7, 256, 8192, 57344, 5000000}) {
      for (const std::int64_t pack : {1, 4, 8}) {
        for (const std::int64_t sums : {1, 2}) {
          const std::int64_t scratch = 1 << 21;
          const ColumnGeometry g = column_blocks(rows, columns, pack, sums, scratch);
          EXPECT_GE(g.tiles * kWarp * pack, columns);
          EXPECT_LT((g.tiles - 1) * kWarp * pack, columns);
          EXPECT_GE(g.chunks, 1);
          EXPECT_LE(g.chunks, kMaxGridY);
          EXPECT_LE(g.tiles, kMaxGridX);
          EXPECT_GE(g.chunks * g.rows_a_chunk, rows);
          EXPECT_TRUE(g.chunks == 1 || (g.chunks - 1) * g.rows_a_chunk < rows);
          EXPECT_TRUE(g.chunks == 1 || g.chunks * columns * sums <= scratch);
        }
      }
    }
  }
  EXPECT_EQ(column_blocks(2048, 1024, 8, 2, 1 << 21), (ColumnGeometry{4, 32, 64}));
  // What has no room for two chunks is summed in one.
  EXPECT_EQ(column_blocks(4096, 5000000, 4, 1, 1 << 21).chunks, 1);
}

TEST(LaunchGeometry, PartialSumsFitTheScratch) {
  for (const std::int64_t items : kSizes) {
    EXPECT_LE(sum_blocks(items).blocks, kSumBlocks);
    EXPECT_LE(sum_blocks(items).blocks * 8, kScratchBytes);
  }
}

TEST(LaunchGeometry, PacksNeedTheAlignmentOfAllArrays) {
  alignas(16) std::array<float, 8> a{}, b{};
  const float* none = nullptr;
  EXPECT_TRUE((aligned_for<4>(a.data(), b.data())));
  EXPECT_TRUE((aligned_for<4>(a.data(), none)));
  EXPECT_FALSE((aligned_for<4>(a.data(), b.data() + 1)));
  EXPECT_FALSE((aligned_for<4>(a.data() + 2, b.data())));
  EXPECT_TRUE((aligned_for<2>(a.data() + 2, b.data())));
  EXPECT_TRUE((aligned_for<1>(a.data() + 1, b.data() + 3)));
}

}  // namespace
}  // namespace tandem::cuda
