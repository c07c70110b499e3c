#include "core/cpu/footprint.h"

#include <algorithm>
#include <compare>
#include <set>
#include <vector>

#include "core/cpu/converted_blocks.h"
#include "core/cpu/onednn.h"

namespace tandem::cpu {

namespace {

// What oneDNN's sgemm copies together (src/cpu/x64/gemm/gemm_info.cpp): `depth` of the contraction
// by as many columns of c as there are, up to a limit, and by the rows of one block.
constexpr std::int64_t kMostColumns = 10000;
constexpr std::int64_t kPackedRows = 432;

// Kernels of one shape; those with an epilogue have code of their own.
constexpr double kPrimitive = 13.0 * 1024;
constexpr double kPrimitiveWithEpilogue = 281.0 * 1024;

/// What tells kernels apart, beside what follows from it.
struct Kernel {
  std::int64_t rows, columns, inner, c_stride;
  bool transpose_b, sums_in_main, bias, accumulates;
  auto operator<=>(const Kernel&) const = default;
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

double packed_bytes(std::int64_t columns, std::int64_t inner, int threads) {
  static const bool avx512 = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
  const std::int64_t depth = avx512         ? std::min<std::int64_t>(inner, 384)
                             : inner <= 256 ? inner
                                            : 192;
  // Two threads share their columns; of four, every two do.
  const int groups = (threads + 1) / 2;
  const std::int64_t most = threads == 1 ? kMostColumns : 2 * kMostColumns;
  const std::int64_t lines = groups * std::min(columns, most) + threads * kPackedRows;
  return static_cast<double>(lines * depth) * sizeof(float);
}

}  // namespace

std::size_t footprint(std::span<const ProductSize> products, DType storage, int threads,
                      double row_counts) {
  const bool converts = storage == DType::kF16 || (storage == DType::kBF16 && !multiplies_bf16());
  double blocks = 0.0, packed = 0.0;
  std::set<Kernel> kernels;
  for (const ProductSize& product : products) {
    std::int64_t columns = product.columns, inner = product.inner;
    if (converts) {
      const ConvertedBlocks cut(columns, inner, !product.sums_in_main);
      blocks = std::max(blocks, static_cast<double>(cut.floats()) * sizeof(float));
      add_blocks(product, cut, kernels);
      columns = cut.columns;
      inner = std::min(inner, cut.depth);
    } else {
      kernels.insert({product.rows, columns, inner, columns, product.transpose_b,
                      product.sums_in_main, product.bias, product.accumulates});
    }
    packed = std::max(packed, packed_bytes(columns, inner, threads));
  }
  double code = 0.0;
  for (const Kernel& kernel : kernels) {
    code += kernel.bias || kernel.accumulates ? kPrimitiveWithEpilogue : kPrimitive;
  }
  return static_cast<std::size_t>(blocks + packed + row_counts * code);
}

}  // namespace tandem::cpu
