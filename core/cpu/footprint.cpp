#include "core/cpu/footprint.h"

#include <algorithm>
#include <compare>
#include <set>
#include <vector>

#include "core/cpu/converted_blocks.h"
#include "core/cpu/onednn.h"

namespace tandem::cpu {

namespace {

// What oneDNN's gemm copies together (src/cpu/x64/gemm/gemm_info.cpp): a depth of the contraction
// by as many columns of c as there are, up to a limit, and by the rows of one block.
constexpr std::int64_t kDepth = 192, kDepthBf16 = 768;
constexpr std::int64_t kMostColumns = 10000;
constexpr std::int64_t kPackedRows = 432;
// Its kernels, which are made once a process for matrices of any shape.
constexpr std::size_t kGemmKernels = 1792 * 1024;

// What is kept for a product of one shape, and the pages that its own kernels fill; gemm has such
// kernels for an epilogue only.
constexpr double kPrimitive = 13.0 * 1024;
constexpr double kPrimitiveWithEpilogue = 37.0 * 1024;

// The same of a product in tiles, fp32 and bf16: more where none, one, or more of its three sizes
// are no multiples of 64, since what is left over has code of its own.
constexpr double kTiledPrimitive[][3] = {{112.0 * 1024, 132.0 * 1024, 300.0 * 1024},
                                         {180.0 * 1024, 280.0 * 1024, 1000.0 * 1024}};

/// What tells kernels apart, beside what follows from it.
struct Kernel {
  std::int64_t rows, columns, inner, c_stride;
  bool transpose_b, sums_in_main, bias, accumulates;
  auto operator<=>(const Kernel&) const = default;

  int odd_sizes() const {
    return static_cast<int>(rows % 64 != 0) + static_cast<int>(columns % 64 != 0) +
           static_cast<int>(inner % 64 != 0);
  }
};

/// Lengths of the pieces that `total` is cut into: of the first, and of the last if it is shorter.
std::vector<std::int64_t> lengths(std::int64_t total, std::int64_t piece) {
  std::vector<std::int64_t> all = {std::min(total, piece)};
  if (total > piece && total % piece != 0) {
    all.push_back(total % piece);
  }
  return all;
}

/// Adds the kernels of a product that is cut into blocks, as Matmul::multiply_converted does.
void add_blocks(const ProductSize& product, const ConvertedBlocks& cut, std::set<Kernel>& kernels) {
  const bool main = product.sums_in_main;
  for (const std::int64_t width : lengths(product.columns, cut.columns)) {
    for (const std::int64_t height : lengths(product.rows, kBlockRows)) {
      const auto add = [&](std::int64_t depth, bool bias, bool accumulates) {
        kernels.insert({height, width, depth, main ? product.columns : width, product.transpose_b,
                        main, bias, accumulates});
      };
      add(std::min(product.inner, cut.depth), product.bias, product.accumulates);
      // The pieces of the contraction behind the first are added to it.
      if (product.inner > cut.depth) {
        for (const std::int64_t depth : lengths(product.inner - cut.depth, cut.depth)) {
          add(depth, false, true);
        }
      }
    }
  }
}

double packed_bytes(std::int64_t columns, std::int64_t inner, DType type, int threads) {
  const std::int64_t depth = type == DType::kBF16 ? std::min(inner, kDepthBf16)
                             : inner <= 256       ? inner
                                                  : kDepth;
  // Two threads share their columns; of four, every two do.
  const int groups = (threads + 1) / 2;
  const std::int64_t most = threads == 1 ? kMostColumns : 2 * kMostColumns;
  const std::int64_t lines = groups * std::min(columns, most) + threads * kPackedRows;
  return static_cast<double>(lines * depth) * static_cast<double>(size_of(type));
}

/// What oneDNN is given to multiply.
DType multiplied_type(DType storage) {
  return storage == DType::kBF16 && multiplies_bf16() ? DType::kBF16 : DType::kF32;
}

}  // namespace

std::size_t shared_footprint(DType storage) {
  return multiplies_in_tiles(multiplied_type(storage)) ? 0 : kGemmKernels;
}

std::size_t footprint(std::span<const ProductSize> products, DType storage, int threads,
                      double row_counts) {
  const DType type = multiplied_type(storage);
  const bool bf16 = type == DType::kBF16, tiles = multiplies_in_tiles(type);
  double blocks = 0.0, packed = 0.0;
  double scratchpad = tiles || bf16 ? static_cast<double>(kLeastScratchpad) * threads : 0.0;
  std::set<Kernel> kernels;
  for (const ProductSize& product : products) {
    std::int64_t columns = product.columns, inner = product.inner;
    if (type != storage) {
      const ConvertedBlocks cut(columns, inner, !product.sums_in_main);
      blocks = std::max(blocks, static_cast<double>(cut.floats()) * sizeof(float));
      add_blocks(product, cut, kernels);
      columns = cut.columns;
      inner = std::min(inner, cut.depth);
    } else {
      kernels.insert({product.rows, columns, inner, columns, product.transpose_b,
                      product.sums_in_main, product.bias, product.accumulates});
    }
    if (!tiles) {
      packed = std::max(packed, packed_bytes(columns, inner, type, threads));
      // Sums of a bf16 result are fp32.
      if (bf16 && !product.sums_in_main) {
        scratchpad =
            std::max(scratchpad, static_cast<double>(product.rows * columns) * sizeof(float));
      }
    }
  }
  double code = 0.0;
  for (const Kernel& kernel : kernels) {
    if (tiles) {
      code += kTiledPrimitive[bf16 ? 1 : 0][std::min(kernel.odd_sizes(), 2)];
    } else {
      const bool epilogue = kernel.bias || kernel.accumulates || (bf16 && !kernel.sums_in_main);
      code += epilogue ? kPrimitiveWithEpilogue : kPrimitive;
    }
  }
  return static_cast<std::size_t>(blocks + packed + scratchpad + row_counts * code);
}

}  // namespace tandem::cpu
