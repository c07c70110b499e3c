#include "core/cpu/footprint.h"

#include <algorithm>

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

bool multiplies_bf16() {
  static const bool yes = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16;
  return yes;
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
  double blocks = 0.0, packed = 0.0, kernels = 0.0;
  for (const ProductSize& product : products) {
    std::int64_t columns = product.columns, inner = product.inner;
    if (converts) {
      const ConvertedBlocks cut(columns, inner, !product.sums_in_main);
      blocks = std::max(blocks, static_cast<double>(cut.floats()) * sizeof(float));
      columns = cut.columns;
      inner = std::min(inner, cut.depth);
    }
    packed = std::max(packed, packed_bytes(columns, inner, threads));
    kernels += product.has_epilogue ? kPrimitiveWithEpilogue : kPrimitive;
  }
  return static_cast<std::size_t>(blocks + packed + row_counts * kernels);
}

}  // namespace tandem::cpu
