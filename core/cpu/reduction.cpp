#include <algorithm>

#include "core/cpu/dispatch.h"
#include "core/cpu/kernels.h"
#include "core/reference/kernels.h"

// From here on this file is compiled once for each target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/reduction.cpp"
#include "hwy/foreach_target.h"
#include "core/cpu/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

constexpr std::int64_t kColumns = 512;  // of one pass down the rows

/// Columns [begin, begin + count) of the sum; count <= kColumns. Eight rows are added as a tree
/// before they join the running sum, which is faster and loses less.
template <typename T>
void column_sum_block(const ColumnSum& args, std::int64_t begin, std::int64_t count) {
  const std::int64_t n = args.x.dim(1), rows = args.x.dim(0);
  const T* x = args.x.as<T>() + begin;
  HWY_ALIGN float sums[kColumns] = {};
  std::int64_t r = 0;
  for (; r + 8 <= rows; r += 8) {
    const T* top = x + r * n;
    for_vectors(0, count, [&](std::int64_t i, auto part) HWY_ATTR {
      const auto pair = [&](std::int64_t first) HWY_ATTR {
        return hn::Add(load(top + first * n + i, part), load(top + (first + 1) * n + i, part));
      };
      const V eight = hn::Add(hn::Add(pair(0), pair(2)), hn::Add(pair(4), pair(6)));
      store(hn::Add(load(sums + i, part), eight), sums + i, part);
    });
  }
  for (; r < rows; ++r) {
    for_vectors(0, count, [&](std::int64_t i, auto part) HWY_ATTR {
      store(hn::Add(load(sums + i, part), load(x + r * n + i, part)), sums + i, part);
    });
  }
  float* out = args.out.as<float>() + begin;
  for_vectors(0, count, [&](std::int64_t i, auto part) HWY_ATTR {
    const V sum = load(sums + i, part);
    store(args.write == Write::kAccumulate ? hn::Add(load(out + i, part), sum) : sum, out + i,
          part);
  });
}

void ColumnSumColumns(const ColumnSum& args, std::int64_t begin, std::int64_t end) {
  visit_storage(args.x.dtype, [&](auto* type) HWY_ATTR {
    for (std::int64_t c = begin; c < end; c += kColumns) {
      column_sum_block<std::remove_pointer_t<decltype(type)>>(args, c, std::min(kColumns, end - c));
    }
  });
}

using Doubles = hn::ScalableTag<double>;
using HalfFloats = hn::Rebind<float, Doubles>;  // as many lanes as doubles fill a vector

double SumOfSquaresRange(const Tensor& x, std::int64_t begin, std::int64_t end) {
  auto low = hn::Zero(Doubles()), high = hn::Zero(Doubles());
  visit_storage(x.dtype, [&](auto* type) HWY_ATTR {
    const auto* values = x.as<std::remove_pointer_t<decltype(type)>>();
    for_vectors(begin, end, [&](std::int64_t i, auto part) HWY_ATTR {
      const V v = load(values + i, part);
      const auto a = hn::PromoteTo(Doubles(), hn::LowerHalf(HalfFloats(), v));
      low = hn::MulAdd(a, a, low);
#if HWY_TARGET != HWY_SCALAR
      const auto b = hn::PromoteTo(Doubles(), hn::UpperHalf(HalfFloats(), v));
      high = hn::MulAdd(b, b, high);
#endif
    });
  });
  return hn::GetLane(hn::SumOfLanes(Doubles(), hn::Add(low, high)));
}

struct Sum {
  static HWY_INLINE V combine(V a, V b) { return hn::Add(a, b); }
};
struct Maximum {  // NaN stays
  static HWY_INLINE V combine(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
  }
};
struct Minimum {
  static HWY_INLINE V combine(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(b)), b, a);
  }
};

template <typename Op, typename T>
void reduce(const ReduceRanks& args, std::int64_t begin, std::int64_t end) {
  for_vectors(begin, end, [&](std::int64_t i, auto part) HWY_ATTR {
    V sum = load(args.inputs[0].as<T>() + i, part);
    for (std::size_t rank = 1; rank < args.inputs.size(); ++rank) {
      sum = Op::combine(sum, load(args.inputs[rank].as<T>() + i, part));
    }
    for (const Tensor& out : args.outputs) {
      store(sum, out.as<T>() + i, part);
    }
  });
}

void ReduceRanksRange(const ReduceRanks& args, std::int64_t begin, std::int64_t end) {
  visit_storage(args.inputs[0].dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    switch (args.op) {
      case ReduceOp::kSum:
        return reduce<Sum, T>(args, begin, end);
      case ReduceOp::kMax:
        return reduce<Maximum, T>(args, begin, end);
      case ReduceOp::kMin:
        return reduce<Minimum, T>(args, begin, end);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(ColumnSumColumns);
HWY_EXPORT(SumOfSquaresRange);
HWY_EXPORT(ReduceRanksRange);

void column_sum(const ColumnSum& args, int threads) {
  // Threads share columns, not rows: the sums are the same for every thread count.
  split(threads, args.x.dim(1), args.x.dim(0), 64, [&](std::int64_t begin, std::int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(ColumnSumColumns)(args, begin, end);
  });
}

void sum_of_squares(const SumOfSquares& args, int threads) {
  PartialSums partial;
  split(partial.limit(threads), args.x.numel(), 1, 64,
        [&](std::int64_t begin, std::int64_t end, int part) {
          partial[part] = HWY_DYNAMIC_DISPATCH(SumOfSquaresRange)(args.x, begin, end);
        });
  double* out = args.out.as<double>();
  *out = (args.write == Write::kAccumulate ? *out : 0.0) + partial.total();
}

void reduce_ranks(const ReduceRanks& args, int threads) {
  const DType type = args.inputs[0].dtype;
  if (type != DType::kF32 && type != DType::kBF16 && type != DType::kF16) {
    return reference::reduce_ranks(args, threads);
  }
  split(threads, args.inputs[0].numel(), 1, 64, [&](std::int64_t begin, std::int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(ReduceRanksRange)(args, begin, end);
  });
}

}  // namespace tandem::cpu
#endif
