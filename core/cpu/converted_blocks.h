// How a product of types that oneDNN refuses is cut: blocks of its operands are converted to fp32,
// multiplied, and the result is converted back.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::cpu {

// Large enough that converting an operand block again for each block of the other costs one or two
// per cent, small enough that the fp32 block of c stays in the cache.
inline constexpr std::int64_t kBlockRows = 512;
inline constexpr std::int64_t kBlockColumns = 1024;
// The contraction of a product with an fp32 result is a weight gradient's: as long as the
// micro-batch, and added up in pieces so that the blocks' memory does not depend on it.
inline constexpr std::int64_t kBlockInner = 1024;

/// Floats of each block, in whole cache lines.
struct ConvertedBlocks {
  /// Of c [rows, n] over k; `convert_c`: c is not fp32.
  ConvertedBlocks(std::int64_t n, std::int64_t k, bool convert_c)
      : columns(std::min(n, kBlockColumns)),
        depth(convert_c ? k : kBlockInner),
        a(whole_lines(kBlockRows * depth)),
        b(whole_lines(columns * depth)),
        c(convert_c ? whole_lines(kBlockRows * columns) : 0) {}

  static std::int64_t whole_lines(std::int64_t count) { return (count + 15) / 16 * 16; }
  /// With a bias of a block's columns.
  std::int64_t floats() const { return a + b + c + columns; }

  std::int64_t columns, depth, a, b, c;
};

}  // namespace tandem::cpu
