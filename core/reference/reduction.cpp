#include <algorithm>

#include "core/parallel_for.h"
#include "core/reference/elements.h"
#include "core/reference/kernels.h"

namespace tandem::reference {
namespace {

/// T as stored, Sum as added up.
template <typename T, typename Sum>
void reduce(const ReduceRanks& args, int threads) {
  const auto combine = [op = args.op](Sum a, Sum b) {
    switch (op) {
      case ReduceOp::kSum:
        return static_cast<Sum>(a + b);
      case ReduceOp::kMax:
        return b > a || b != b ? b : a;  // NaN stays
      case ReduceOp::kMin:
        return b < a || b != b ? b : a;
    }
    return a;
  };
  const auto at = [](const Tensor& t) { return reinterpret_cast<T*>(t.data); };
  parallel_for(threads, args.inputs[0].numel(), 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      auto sum = static_cast<Sum>(at(args.inputs[0])[i]);
      for (std::size_t rank = 1; rank < args.inputs.size(); ++rank) {
        sum = combine(sum, static_cast<Sum>(at(args.inputs[rank])[i]));
      }
      for (const Tensor& out : args.outputs) {
        at(out)[i] = static_cast<T>(sum);
      }
    }
  });
}

}  // namespace

void column_sum(const ColumnSum& args, int threads, HostScratch& scratch) {
  const std::int64_t rows = args.x.dim(0), n = args.x.dim(1);
  double* sums = scratch.reserve<double>(static_cast<std::size_t>(n));
  std::fill_n(sums, n, 0.0);
  parallel_for(threads, n, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = begin; c < end; ++c) {
        sums[c] += load(args.x, r * n + c);
      }
    }
    for (std::int64_t c = begin; c < end; ++c) {
      store(args.out, c, sums[c] + (args.write == Write::kAccumulate ? load(args.out, c) : 0.0));
    }
  });
}

void sum_of_squares(const SumOfSquares& args) {
  double sum = args.write == Write::kAccumulate ? *args.out.as<double>() : 0.0;
  for (std::int64_t i = 0; i < args.x.numel(); ++i) {
    sum += load(args.x, i) * load(args.x, i);
  }
  *args.out.as<double>() = sum;
}

void reduce_ranks(const ReduceRanks& args, int threads) {
  switch (args.inputs[0].dtype) {
    case DType::kF64:
      return reduce<double, double>(args, threads);
    case DType::kF32:
      return reduce<float, float>(args, threads);
    case DType::kBF16:
      return reduce<BFloat16, float>(args, threads);
    case DType::kF16:
      return reduce<Float16, float>(args, threads);
    case DType::kI64:
      return reduce<std::int64_t, std::int64_t>(args, threads);
    case DType::kI32:
      return reduce<std::int32_t, std::int64_t>(args, threads);
    case DType::kU8:
      return reduce<std::uint8_t, std::int64_t>(args, threads);
  }
}

}  // namespace tandem::reference
