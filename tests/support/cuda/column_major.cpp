#include "tests/support/cuda/column_major.h"

#include <algorithm>
#include <vector>

#include "core/elements.h"
#include "core/reference/elements.h"

namespace tandem::testing {
namespace {

using cuda::Epilogue;

/// Element (row, column) of a matrix by column.
struct ByColumn {
  Tensor memory;
  std::int64_t ld;

  ByColumn(const void* data, DType type, std::int64_t stride)
      : memory(const_cast<void*>(data), type, {1}), ld(stride) {}
  double get(std::int64_t row, std::int64_t column) const {
    return reference::load(memory, row + column * ld);
  }
  void put(std::int64_t row, std::int64_t column, double value) const {
    reference::store(memory, row + column * ld, value);
  }
};

}  // namespace

void execute_column_major(const cuda::MatmulCall& call) {
  const cuda::MatmulDescription& want = call.description;
  const ByColumn a(call.operands.a, want.input, want.lda), b(call.operands.b, want.input, want.ldb);
  const ByColumn d(call.operands.d, want.output, want.ldd);
  const ByColumn aux(call.operands.aux, want.output, want.ld_aux);
  const ByColumn bias(call.operands.bias, want.bias, 1);
  const bool reads_bias =
      want.epilogue == Epilogue::kBias || want.epilogue == Epilogue::kGeluAuxBias;
  // op(A) by column and op(B) by column, unpacked once.
  std::vector<double> left(static_cast<std::size_t>(want.m * want.k));
  std::vector<double> right(static_cast<std::size_t>(want.k * want.n));
  for (std::int64_t p = 0; p < want.k; ++p) {
    for (std::int64_t i = 0; i < want.m; ++i) {
      left[static_cast<std::size_t>(p * want.m + i)] = want.transpose_a ? a.get(p, i) : a.get(i, p);
    }
    for (std::int64_t j = 0; j < want.n; ++j) {
      right[static_cast<std::size_t>(j * want.k + p)] =
          want.transpose_b ? b.get(j, p) : b.get(p, j);
    }
  }
  std::vector<double> sums(static_cast<std::size_t>(want.m));
  for (std::int64_t j = 0; j < want.n; ++j) {
    std::ranges::fill(sums, 0.0);
    double right_sum = 0.0;
    for (std::int64_t p = 0; p < want.k; ++p) {
      const double factor = right[static_cast<std::size_t>(j * want.k + p)];
      const double* column = left.data() + p * want.m;
      right_sum += factor;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] += column[i] * factor;
      }
    }
    for (std::int64_t i = 0; i < want.m; ++i) {
      double value = sums[static_cast<std::size_t>(i)];
      value += reads_bias ? bias.get(i, 0) : 0.0;
      value += want.accumulate ? d.get(i, j) : 0.0;
      if (want.epilogue == Epilogue::kGeluAux || want.epilogue == Epilogue::kGeluAuxBias) {
        aux.put(i, j, value);
        value = gelu(value);
      } else if (want.epilogue == Epilogue::kDGelu) {
        value *= gelu_slope(aux.get(i, j));
      }
      d.put(i, j, value);
    }
    if (want.epilogue == Epilogue::kBiasGradB) {
      bias.put(j, 0, right_sum);
    }
  }
}

}  // namespace tandem::testing
