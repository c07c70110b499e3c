#include <cmath>
#include <limits>

#include "core/cpu/dispatch.h"
#include "core/cpu/kernels.h"

// From here on this file is compiled once for each target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/loss.cpp"
#include "hwy/foreach_target.h"
#include "core/cpu/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

/// max(a, b), or NaN if either is.
HWY_INLINE V max_or_nan(V a, V b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b));  // Max gives b if b is NaN
}

void CrossEntropyMaxRows(const CrossEntropyMax& args, std::int64_t begin, std::int64_t end) {
  const V lowest = hn::Set(kFloats, -std::numeric_limits<float>::infinity());
  visit_storage(args.logits.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    for (std::int64_t r = begin; r < end; ++r) {
      const T* logits = args.logits.as<T>() + r * args.logits.dim(1);
      V max = lowest;
      for_vectors(0, args.valid_columns, [&](std::int64_t i, auto part) HWY_ATTR {
        max = max_or_nan(max, select(load(logits + i, part), lowest, part));
      });
      const bool nan = !hn::AllFalse(kFloats, hn::IsNaN(max));
      args.row_max.as<float>()[r] =
          nan ? std::numeric_limits<float>::quiet_NaN() : hn::GetLane(hn::MaxOfLanes(kFloats, max));
    }
  });
}

void CrossEntropySumsRows(const CrossEntropySums& args, std::int64_t begin, std::int64_t end) {
  visit_storage(args.logits.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    for (std::int64_t r = begin; r < end; ++r) {
      const T* logits = args.logits.as<T>() + r * args.logits.dim(1);
      const float max = args.row_max.as<float>()[r];
      V sum = hn::Zero(kFloats);
      for_vectors(0, args.valid_columns, [&](std::int64_t i, auto part) HWY_ATTR {
        const V term = exp(hn::Sub(load(logits + i, part), hn::Set(kFloats, max)));
        sum = hn::Add(sum, select(term, hn::Zero(kFloats), part));
      });
      const std::int64_t target = args.targets.as<std::int32_t>()[r];
      const std::int64_t local = target - args.vocab_start;
      const bool here = target >= 0 && local >= 0 && local < args.valid_columns;
      float* out = args.sums.as<float>() + 2 * r;
      out[0] = sum_of_lanes(sum);
      out[1] = here ? static_cast<float>(logits[local]) - max : 0.0f;
    }
  });
}

/// Row r of d_logits; without a target all zeros.
template <typename T>
void cross_entropy_row(const CrossEntropyBackward& args, std::int64_t r) {
  const std::int64_t columns = args.logits.dim(1);
  const T* logits = args.logits.as<T>() + r * columns;
  T* d_logits = args.d_logits.as<T>() + r * columns;
  const std::int64_t target = args.targets.as<std::int32_t>()[r];
  const std::int64_t valid = target >= 0 ? args.valid_columns : 0;
  const std::int64_t local = target - args.vocab_start;
  const V max = hn::Set(kFloats, args.row_max.as<float>()[r]);
  const V sum = hn::Set(kFloats, args.sums.as<float>()[2 * r]);
  const V scale = hn::Set(kFloats, static_cast<float>(args.scale));
  for_vectors(0, valid, [&](std::int64_t i, auto part) HWY_ATTR {
    V softmax = hn::Div(exp(hn::Sub(load(logits + i, part), max)), sum);
    if (local >= i && local < i + static_cast<std::int64_t>(lanes())) {
      const auto lane = hn::Iota(Ints(), 0);
      const auto hit = hn::Eq(lane, hn::Set(Ints(), static_cast<std::int32_t>(local - i)));
      softmax = hn::Sub(softmax,
                        hn::IfThenElseZero(hn::RebindMask(kFloats, hit), hn::Set(kFloats, 1.0f)));
    }
    store(hn::Mul(scale, softmax), d_logits + i, part);
  });
  std::memset(static_cast<void*>(d_logits + valid), 0,
              static_cast<std::size_t>(columns - valid) * sizeof(T));
}

void CrossEntropyBackwardRows(const CrossEntropyBackward& args, std::int64_t begin,
                              std::int64_t end) {
  visit_storage(args.logits.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    for (std::int64_t r = begin; r < end; ++r) {
      cross_entropy_row<T>(args, r);
    }
  });
}

/// The sum of squared errors of row r, in double.
template <typename T>
double squared_error(const T* y, const T* target, std::int64_t n) {
  V sum = hn::Zero(kFloats);
  for_vectors(0, n, [&](std::int64_t i, auto part) HWY_ATTR {
    const V error = hn::Sub(load(y + i, part), load(target + i, part));
    sum = hn::MulAdd(error, error, sum);
  });
  return static_cast<double>(sum_of_lanes(sum));
}

/// Loss of rows [begin, end); also writes their gradient where it is wanted.
double MeanSquaredErrorRows(const MeanSquaredError& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = args.y.dim(1);
  double loss = 0.0;
  visit_storage(args.y.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const V factor =
        hn::Set(kFloats, static_cast<float>(args.scale * 2.0 / static_cast<double>(n)));
    for (std::int64_t r = begin; r < end; ++r) {
      const T* y = args.y.as<T>() + r * n;
      const T* target = args.target.as<T>() + r * n;
      loss += squared_error(y, target, n) / static_cast<double>(n);
      if (args.d_y.absent()) {
        continue;
      }
      T* d_y = args.d_y.as<T>() + r * n;
      for_vectors(0, n, [&](std::int64_t i, auto part) HWY_ATTR {
        store(hn::Mul(factor, hn::Sub(load(y + i, part), load(target + i, part))), d_y + i, part);
      });
    }
  });
  return loss;
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(CrossEntropyMaxRows);
HWY_EXPORT(CrossEntropySumsRows);
HWY_EXPORT(CrossEntropyBackwardRows);
HWY_EXPORT(MeanSquaredErrorRows);

void cross_entropy_max(const CrossEntropyMax& args, int threads) {
  split(threads, args.logits.dim(0), args.valid_columns, 1,
        [&](std::int64_t begin, std::int64_t end, int) {
          HWY_DYNAMIC_DISPATCH(CrossEntropyMaxRows)(args, begin, end);
        });
}

void cross_entropy_sums(const CrossEntropySums& args, int threads) {
  split(threads, args.logits.dim(0), args.valid_columns, 1,
        [&](std::int64_t begin, std::int64_t end, int) {
          HWY_DYNAMIC_DISPATCH(CrossEntropySumsRows)(args, begin, end);
        });
}

void cross_entropy_backward(const CrossEntropyBackward& args, int threads) {
  double loss = 0.0;
  for (std::int64_t r = 0; r < args.logits.dim(0); ++r) {
    if (args.targets.as<std::int32_t>()[r] >= 0) {
      const float* sums = args.sums.as<float>() + 2 * r;
      loss += std::log(static_cast<double>(sums[0])) - static_cast<double>(sums[1]);
    }
  }
  *args.loss_sum.as<double>() += loss;
  if (args.d_logits.absent()) {
    return;
  }
  split(threads, args.logits.dim(0), args.logits.dim(1), 1,
        [&](std::int64_t begin, std::int64_t end, int) {
          HWY_DYNAMIC_DISPATCH(CrossEntropyBackwardRows)(args, begin, end);
        });
}

void mean_squared_error(const MeanSquaredError& args, int threads) {
  if (args.y.numel() == 0) {
    return;
  }
  PartialSums partial;
  split(partial.limit(threads), args.y.dim(0), args.y.dim(1), 1,
        [&](std::int64_t begin, std::int64_t end, int part) {
          partial[part] = HWY_DYNAMIC_DISPATCH(MeanSquaredErrorRows)(args, begin, end);
        });
  *args.loss_sum.as<double>() += partial.total();
}

}  // namespace tandem::cpu
#endif
