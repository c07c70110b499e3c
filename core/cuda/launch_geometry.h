// How many blocks of how many threads a kernel is launched with: plain functions of sizes, so that
// they are tested without a GPU. No number depends on the GPU, and so neither does the order in
// which a sum is made.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::cuda {

inline constexpr std::int64_t kWarp = 32;
inline constexpr std::int64_t kThreads = 256;  ///< of all kernels but those with a block per row
inline constexpr std::int64_t kMaxBlocks = 8192;
inline constexpr std::int64_t kRowThreads = 512;  ///< most of a kernel with a block per row
inline constexpr std::int64_t kScratchBytes = std::int64_t{8} << 20;  ///< of a stream, for sums

struct Geometry {
  std::int64_t blocks = 0;
  std::int64_t threads = kThreads;
  bool operator==(const Geometry&) const = default;
};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// A thread for each of `items`, in a grid-stride loop from kMaxBlocks on. At least one block.
constexpr Geometry elementwise(std::int64_t items) {
  return {std::clamp<std::int64_t>(ceil_div(items, kThreads), 1, kMaxBlocks), kThreads};
}

/// A block for each row (in a stride loop over more rows than a grid may have), with whole warps
/// and about four packs a thread.
constexpr Geometry row_blocks(std::int64_t rows, std::int64_t packs) {
  const std::int64_t warps =
      std::clamp<std::int64_t>(ceil_div(packs, 4 * kWarp), 1, kRowThreads / kWarp);
  return {std::clamp<std::int64_t>(rows, 1, std::int64_t{1} << 30), warps * kWarp};
}

/// The first of the two stages of a sum in double: this many partial sums, or fewer.
inline constexpr std::int64_t kSumBlocks = 1024;
constexpr Geometry sum_blocks(std::int64_t items) {
  return {std::clamp<std::int64_t>(ceil_div(items, 4 * kThreads), 1, kSumBlocks), kThreads};
}

/// Sums over rows: a block adds the rows of one chunk for one tile of columns. More than one chunk
/// needs scratch for chunks x columns x sums floats, and a second stage that adds the chunks.
struct ColumnGeometry {
  std::int64_t tiles = 0;         ///< blockIdx.x
  std::int64_t chunks = 1;        ///< blockIdx.y
  std::int64_t rows_a_chunk = 0;  ///< the last chunk may have fewer
  bool operator==(const ColumnGeometry&) const = default;
};
inline constexpr std::int64_t kColumnChunks = 64;
/// `scratch` floats are there; a pack is the columns of one thread. Threads: kThreads, as kWarp
/// packs by kThreads / kWarp rows.
constexpr ColumnGeometry column_blocks(std::int64_t rows, std::int64_t columns, std::int64_t pack,
                                       std::int64_t sums, std::int64_t scratch) {
  const std::int64_t width = std::max<std::int64_t>(columns * sums, 1);
  const std::int64_t most =
      std::clamp<std::int64_t>(scratch / width, 1, kColumnChunks);  // 1 needs no scratch
  const std::int64_t rows_a_chunk = std::max<std::int64_t>(ceil_div(rows, most), kThreads / 4);
  return {.tiles = ceil_div(columns, kWarp * pack),
          .chunks = std::max<std::int64_t>(ceil_div(rows, rows_a_chunk), 1),
          .rows_a_chunk = rows_a_chunk};
}

/// Whether N elements at a time can be read from and written to all of these arrays. Null pointers
/// stand for arrays that are absent.
template <int N, typename... T>
bool aligned_for(const T*... arrays) {
  return ((reinterpret_cast<std::uintptr_t>(arrays) % (N * sizeof(T)) == 0) && ...);
}

}  // namespace tandem::cuda
