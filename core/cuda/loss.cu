#include "core/cuda/sums.cuh"

namespace tandem::cuda {
namespace {

/// The columns of a row that are real vocabulary need not be whole packs: f(column) takes one, and
/// rows are walked in packs only where every row starts on one.
template <int N, typename T, typename F>
__device__ void for_each_logit(const T* row, std::int64_t columns, const F& f) {
  const std::int64_t packs = columns / N;
  for (std::int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
    const Pack<float, N> values = load<N>(row + p * N);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      f(values.v[k]);
    }
  }
  if constexpr (N > 1) {
    for (std::int64_t c = packs * N + threadIdx.x; c < columns; c += blockDim.x) {
      f(value_of(row[c]));
    }
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kRowThreads)
    max_rows(const T* logits, std::int64_t rows, std::int64_t columns, std::int64_t valid,
             float* row_max) {
  __shared__ float shared[kWarp];
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float most = float_of(0xff800000u);  // -infinity
    for_each_logit<N>(logits + row * columns, valid, [&](float x) { most = larger(most, x); });
    most = block_reduce(most, shared, Larger());
    if (threadIdx.x == 0) {
      row_max[row] = most;
    }
  }
}

template <typename T>
struct Logits {
  const T* logits;
  const std::int32_t* targets;
  const float* row_max;
  std::int64_t rows, columns, valid, vocab_start;
};

template <int N, typename T>
__global__ void __launch_bounds__(kRowThreads) sum_rows(Logits<T> a, float* sums) {
  __shared__ float shared[kWarp];
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* logits = a.logits + row * a.columns;
    const float most = a.row_max[row];
    float sum = 0.0f;
    for_each_logit<N>(logits, a.valid, [&](float x) { sum += std::exp(x - most); });
    sum = block_reduce(sum, shared, Add());
    if (threadIdx.x == 0) {
      const std::int64_t target = a.targets[row], local = target - a.vocab_start;
      const bool here = target >= 0 && local >= 0 && local < a.valid;
      sums[2 * row] = sum;
      sums[2 * row + 1] = here ? value_of(logits[local]) - most : 0.0f;
    }
  }
}

struct CrossEntropyLoss {
  const std::int32_t* targets;
  const float* sums;

  __device__ double operator()(std::int64_t row, Width<1>) const {
    return targets[row] >= 0 ? std::log(static_cast<double>(sums[2 * row])) -
                                   static_cast<double>(sums[2 * row + 1])
                             : 0.0;
  }
};

template <typename T>
struct CrossEntropyGradient {
  Logits<T> a;
  const float* sums;
  T* d_logits;
  float scale;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    const Place place = place_of(i, a.columns);
    const std::int64_t target = a.targets[place.row];
    const float most = a.row_max[place.row], sum = sums[2 * place.row];
    Pack<float, N> x = load<N>(a.logits + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const std::int64_t column = place.column + k;
      const float onehot = target == a.vocab_start + column ? 1.0f : 0.0f;
      const float gradient = scale * (std::exp(x.v[k] - most) / sum - onehot);
      x.v[k] = target >= 0 && column < a.valid ? gradient : 0.0f;
    }
    store(d_logits + i, x);
  }
};

template <typename T>
struct SquaredError {
  const T* y;
  const T* target;

  template <int N>
  __device__ double operator()(std::int64_t i, Width<N>) const {
    const Pack<float, N> a = load<N>(y + i), b = load<N>(target + i);
    double sum = 0.0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const double error = static_cast<double>(a.v[k]) - static_cast<double>(b.v[k]);
      sum += error * error;
    }
    return sum;
  }
};

template <typename T>
struct SquaredErrorGradient {
  const T* y;
  const T* target;
  T* d_y;
  float scale;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    Pack<float, N> a = load<N>(y + i);
    const Pack<float, N> b = load<N>(target + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      a.v[k] = scale * (a.v[k] - b.v[k]);
    }
    store(d_y + i, a);
  }
};

template <typename T, typename Args>
Logits<T> logits_of(const Args& args) {
  return {.logits = args.logits.template as<T>(),
          .targets = args.targets.template as<std::int32_t>(),
          .row_max = args.row_max.template as<float>(),
          .rows = args.logits.dim(0),
          .columns = args.logits.dim(1),
          .valid = args.valid_columns,
          .vocab_start = args.vocab_start};
}

}  // namespace

void cross_entropy_max(const Launch& launch, const CrossEntropyMax& args) {
  visit_storage(args.logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* logits = args.logits.as<T>();
    const std::int64_t rows = args.logits.dim(0), columns = args.logits.dim(1);
    if (rows == 0) {
      return;
    }
    with_width<kPack<T>>(columns % kPack<T> == 0 && aligned_for<kPack<T>>(logits), [&](auto width) {
      cuda::launch(launch.stream, row_blocks(rows, ceil_div(args.valid_columns, width())),
                   max_rows<width(), T>, logits, rows, columns, args.valid_columns,
                   args.row_max.as<float>());
    });
  });
}

void cross_entropy_sums(const Launch& launch, const CrossEntropySums& args) {
  visit_storage(args.logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto a = logits_of<T>(args);
    if (a.rows == 0) {
      return;
    }
    with_width<kPack<T>>(
        a.columns % kPack<T> == 0 && aligned_for<kPack<T>>(a.logits), [&](auto width) {
          cuda::launch(launch.stream, row_blocks(a.rows, ceil_div(a.valid, width())),
                       sum_rows<width(), T>, a, args.sums.as<float>());
        });
  });
}

void cross_entropy_backward(const Launch& launch, const CrossEntropyBackward& args) {
  visit_storage(args.logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto a = logits_of<T>(args);
    const float* sums = args.sums.as<float>();
    sum_all(launch, a.rows, Width<1>{}, CrossEntropyLoss{a.targets, sums}, 1.0, Write::kAccumulate,
            args.loss_sum.as<double>());
    if (args.d_logits.absent()) {
      return;
    }
    const CrossEntropyGradient<T> gradient{a, sums, args.d_logits.as<T>(),
                                           static_cast<float>(args.scale)};
    with_width<kPack<T>>(
        a.columns % kPack<T> == 0 && aligned_for<kPack<T>>(a.logits, gradient.d_logits),
        [&](auto width) { for_each(launch.stream, args.logits.numel(), width, gradient); });
  });
}

void mean_squared_error(const Launch& launch, const MeanSquaredError& args) {
  visit_storage(args.y.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *y = args.y.as<T>(), *target = args.target.as<T>();
    T* d_y = pointer<T>(args.d_y);
    const std::int64_t count = args.y.numel();
    const double hidden = static_cast<double>(args.y.dim(1));
    with_width<kPack<T>>(aligned_for<kPack<T>>(y, target, d_y), [&](auto width) {
      sum_all(launch, count, width, SquaredError<T>{y, target}, count == 0 ? 0.0 : 1.0 / hidden,
              Write::kAccumulate, args.loss_sum.as<double>());
      if (d_y != nullptr) {
        const auto scale = static_cast<float>(args.scale * 2.0 / hidden);
        for_each(launch.stream, count, width, SquaredErrorGradient<T>{y, target, d_y, scale});
      }
    });
  });
}

}  // namespace tandem::cuda
