#include "core/cpu/footprint.h"

#include <algorithm>
#include <array>
#include <compare>
#include <set>
#include <string_view>
#include <vector>

#include "core/cpu/converted_blocks.h"
#include "core/cpu/onednn.h"
#include "core/device.h"

namespace tandem::cpu {

namespace {

// What oneDNN's gemm copies together (src/cpu/x64/gemm/gemm_info.cpp): a depth of the contraction
// by as many columns of c as there are, up to a limit, and by the rows of one block.
constexpr std::int64_t kDepth = 192, kDepthAvx512 = 384, kDepthBf16 = 768;
constexpr std::int64_t kMostColumns = 10000;
constexpr std::int64_t kPackedRows = 432;
// Its kernels, which are made once a process for matrices of any shape.
constexpr std::size_t kGemmKernels = 1792 * 1024;

// What is kept for a product of one shape, and the pages that its own kernels fill; gemm has such
// kernels for an epilogue only.
constexpr double kGemm = 13.0 * 1024;
constexpr double kGemmWithEpilogue = 37.0 * 1024;

// The same where oneDNN multiplies in tiles ("brgemm", as with AVX-512), of fp32 and bf16, by how
// many of its sizes are no multiples of 64: none, one, more. What remains of such a size has
// kernels of its own.
constexpr double kTiled[][3] = {{112.0 * 1024, 132.0 * 1024, 300.0 * 1024},
                                {180.0 * 1024, 280.0 * 1024, 1000.0 * 1024}};

/// What tells kernels apart, beside what follows from it.
struct Kernel {
  std::int64_t rows, columns, inner, c_stride;
  bool transpose_b, sums_in_main, bias, accumulates;
  auto operator<=>(const Kernel&) const = default;

  std::size_t odd_sizes() const {
    const std::array sizes = {rows, columns, inner};
    return static_cast<std::size_t>(
        std::count_if(sizes.begin(), sizes.end(), [](auto size) { return size % 64 != 0; }));
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

/// The product, without memory.
Gemm gemm_of(const Kernel& kernel, DType type) {
  const auto matrix = [](DType dtype, std::int64_t rows, std::int64_t columns) {
    return Tensor(nullptr, dtype, {rows, columns});
  };
  const auto& [rows, columns, inner, c_stride, transpose_b, sums_in_main, bias, accumulates] =
      kernel;
  Gemm gemm{.a = sums_in_main ? matrix(type, inner, rows) : matrix(type, rows, inner),
            .b = transpose_b ? matrix(type, columns, inner) : matrix(type, inner, columns),
            .c = matrix(sums_in_main ? DType::kF32 : type, rows, columns),
            .transpose_a = sums_in_main,
            .transpose_b = transpose_b,
            .write = accumulates ? Write::kAccumulate : Write::kOverwrite};
  gemm.c.strides[0] = c_stride;
  if (bias) {
    gemm.bias = Tensor(nullptr, type, {columns});
  }
  return gemm;
}

double packed_bytes(const Kernel& kernel, DType type, int threads) {
  static const bool avx512 = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
  const std::int64_t depth = type == DType::kBF16  ? std::min(kernel.inner, kDepthBf16)
                             : avx512              ? std::min(kernel.inner, kDepthAvx512)
                             : kernel.inner <= 256 ? kernel.inner
                                                   : kDepth;
  // Two threads share their columns; of four, every two do.
  const int groups = (threads + 1) / 2;
  const std::int64_t most = threads == 1 ? kMostColumns : 2 * kMostColumns;
  const std::int64_t lines = groups * std::min(kernel.columns, most) + threads * kPackedRows;
  return static_cast<double>(lines * depth) * static_cast<double>(size_of(type));
}

}  // namespace

Footprint footprint(std::span<const ProductSize> products, DType storage, int threads,
                    double row_counts) {
  const bool converts = storage == DType::kF16 || (storage == DType::kBF16 && !multiplies_bf16());
  const DType type = converts ? DType::kF32 : storage;
  double blocks = 0.0;
  std::set<Kernel> kernels;
  for (const ProductSize& product : products) {
    if (converts) {
      const ConvertedBlocks cut(product.columns, product.inner, !product.sums_in_main);
      blocks = std::max(blocks, static_cast<double>(cut.floats()) * sizeof(float));
      add_blocks(product, cut, kernels);
    } else {
      kernels.insert({product.rows, product.columns, product.inner, product.columns,
                      product.transpose_b, product.sums_in_main, product.bias,
                      product.accumulates});
    }
  }
  const ThreadCount scope(threads);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  std::size_t process = 0;
  double packed = 0.0, scratchpad = 0.0, code = 0.0;
  for (const Kernel& kernel : kernels) {
    const auto primitive = make_matmul(gemm_of(kernel, type), engine);
    scratchpad = std::max(scratchpad, static_cast<double>(scratchpad_bytes(primitive, threads)));
    if (std::string_view(primitive.impl_info_str()).starts_with("brg")) {
      code += kTiled[type == DType::kBF16 ? 1 : 0][std::min<std::size_t>(kernel.odd_sizes(), 2)];
    } else {
      // A bf16 result is summed in fp32 and converted.
      const bool epilogue =
          kernel.bias || kernel.accumulates || (type == DType::kBF16 && !kernel.sums_in_main);
      code += epilogue ? kGemmWithEpilogue : kGemm;
      packed = std::max(packed, packed_bytes(kernel, type, threads));
      process = kGemmKernels;
    }
  }
  return {static_cast<std::size_t>(blocks + packed + scratchpad + row_counts * code), process};
}

}  // namespace tandem::cpu
