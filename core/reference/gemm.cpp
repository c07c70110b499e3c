// Matrix product: operands are unpacked to doubles (which also undoes a transposition), then tiles
// of a few rows by a few hundred columns are summed in k order while they sit in the cache.
#include <algorithm>
#include <array>

#include "core/parallel_for.h"
#include "core/reference/elements.h"
#include "core/reference/kernels.h"

namespace tandem::reference {
namespace {

constexpr std::int64_t kTileRows = 8;
constexpr std::int64_t kTileColumns = 256;

/// out[rows, columns] = op(matrix).
void unpack(const Tensor& matrix, bool transpose, std::int64_t rows, std::int64_t columns,
            double* out, int threads) {
  const std::int64_t stride = matrix.strides[0];
  parallel_for(threads, rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        out[i * columns + j] = load(matrix, transpose ? j * stride + i : i * stride + j);
      }
    }
  });
}

}  // namespace

void gemm(const Gemm& args, int threads, HostScratch& scratch) {
  const std::int64_t m = args.c.dim(0), n = args.c.dim(1);
  const std::int64_t k = args.inner();
  double* a = scratch.reserve<double>(static_cast<std::size_t>(m * k + k * n));
  double* b = a + m * k;
  unpack(args.a, args.transpose_a, m, k, a, threads);
  unpack(args.b, args.transpose_b, k, n, b, threads);

  const auto tile = [&](std::int64_t i0, std::int64_t i1, std::int64_t j0, std::int64_t j1) {
    std::array<std::array<double, kTileColumns>, kTileRows> sums{};
    for (std::int64_t p = 0; p < k; ++p) {
      const double* b_row = b + p * n + j0;
      for (std::int64_t i = i0; i < i1; ++i) {
        const double factor = a[i * k + p];
        double* sum = sums[static_cast<std::size_t>(i - i0)].data();
        for (std::int64_t j = 0; j < j1 - j0; ++j) {
          sum[j] += factor * b_row[j];
        }
      }
    }
    for (std::int64_t i = i0; i < i1; ++i) {
      for (std::int64_t j = j0; j < j1; ++j) {
        const std::int64_t at = i * args.c.strides[0] + j;
        double value = sums[static_cast<std::size_t>(i - i0)][static_cast<std::size_t>(j - j0)];
        if (!args.bias.absent()) {
          value += load(args.bias, j);
        }
        if (args.write == Write::kAccumulate) {
          value += load(args.c, at);
        }
        store(args.c, at, value);
      }
    }
  };
  parallel_for(threads, m, kTileRows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; i += kTileRows) {
      for (std::int64_t j = 0; j < n; j += kTileColumns) {
        tile(i, std::min(end, i + kTileRows), j, std::min(n, j + kTileColumns));
      }
    }
  });
}

}  // namespace tandem::reference
