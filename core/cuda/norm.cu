#include "core/cuda/sums.cuh"

namespace tandem::cuda {
namespace {

template <typename T>
struct ForwardRows {
  const T* x;
  const T* weight;
  const T* bias;  ///< null for none
  T* y;
  float* mean;  ///< null for RMS norm
  float* rstd;
  std::int64_t rows, hidden;
  float eps;
};

/// A block for each row, which it reads three times: the second and third come from the cache.
template <int N, typename T>
__global__ void __launch_bounds__(kRowThreads) forward_rows(ForwardRows<T> a) {
  __shared__ float shared[kWarp];
  const std::int64_t packs = a.hidden / N;
  const auto n = static_cast<float>(a.hidden);
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* x = a.x + row * a.hidden;
    float mean = 0.0f;
    if (a.mean != nullptr) {
      float sum = 0.0f;
      for (std::int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
        const Pack<float, N> values = load<N>(x + p * N);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          sum += values.v[k];
        }
      }
      mean = block_reduce(sum, shared, Add()) / n;
    }
    float squares = 0.0f;
    for (std::int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      const Pack<float, N> values = load<N>(x + p * N);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float centred = values.v[k] - mean;
        squares += centred * centred;
      }
    }
    const float rstd = 1.0f / std::sqrt(block_reduce(squares, shared, Add()) / n + a.eps);
    if (threadIdx.x == 0) {
      a.rstd[row] = rstd;
      if (a.mean != nullptr) {
        a.mean[row] = mean;
      }
    }
    for (std::int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      Pack<float, N> values = load<N>(x + p * N);
      const Pack<float, N> weight = load<N>(a.weight + p * N);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        values.v[k] = (values.v[k] - mean) * rstd * weight.v[k];
      }
      if (a.bias != nullptr) {
        const Pack<float, N> bias = load<N>(a.bias + p * N);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          values.v[k] += bias.v[k];
        }
      }
      store(a.y + row * a.hidden + p * N, values);
    }
  }
}

template <typename T>
struct BackwardRows {
  const T* d_y;
  const T* x;
  const T* weight;
  const float* mean;  ///< null for RMS norm
  const float* rstd;
  const T* residual;  ///< null for none
  T* d_x;
  std::int64_t rows, hidden;
};

/// With x^ = (x - mean) rstd and g = d_y weight: d_x = rstd (g - mean(g) - x^ mean(g x^)); RMS norm
/// has no mean(g).
template <int N, typename T>
__global__ void __launch_bounds__(kRowThreads) backward_rows(BackwardRows<T> a) {
  __shared__ float shared[kWarp];
  const std::int64_t packs = a.hidden / N;
  const auto n = static_cast<float>(a.hidden);
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const std::int64_t at = row * a.hidden;
    const float mean = a.mean == nullptr ? 0.0f : a.mean[row], rstd = a.rstd[row];
    float g_sum = 0.0f, gx_sum = 0.0f;
    for (std::int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      const Pack<float, N> d_y = load<N>(a.d_y + at + p * N), x = load<N>(a.x + at + p * N);
      const Pack<float, N> weight = load<N>(a.weight + p * N);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float g = d_y.v[k] * weight.v[k];
        g_sum += g;
        gx_sum += g * ((x.v[k] - mean) * rstd);
      }
    }
    const float g_total = block_reduce(g_sum, shared, Add());
    const float g_mean = a.mean == nullptr ? 0.0f : g_total / n;
    const float gx_mean = block_reduce(gx_sum, shared, Add()) / n;
    for (std::int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
      const Pack<float, N> d_y = load<N>(a.d_y + at + p * N), x = load<N>(a.x + at + p * N);
      const Pack<float, N> weight = load<N>(a.weight + p * N);
      Pack<float, N> d_x;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float g = d_y.v[k] * weight.v[k];
        d_x.v[k] = rstd * (g - g_mean - (x.v[k] - mean) * rstd * gx_mean);
      }
      if (a.residual != nullptr) {
        const Pack<float, N> residual = load<N>(a.residual + at + p * N);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          d_x.v[k] += residual.v[k];
        }
      }
      store(a.d_x + at + p * N, d_x);
    }
  }
}

/// Addends of d_weight (d_y x^) and d_bias (d_y).
template <typename T>
struct WeightColumns {
  const T* d_y;
  const T* x;
  const float* mean;
  const float* rstd;
  std::int64_t hidden;

  template <int N>
  __device__ void operator()(std::int64_t row, std::int64_t column, Pack<float, N>* sums,
                             Width<N>) const {
    const std::int64_t at = row * hidden + column;
    const Pack<float, N> g = load<N>(d_y + at), values = load<N>(x + at);
    const float centre = mean == nullptr ? 0.0f : mean[row], scale = rstd[row];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sums[0].v[k] += g.v[k] * ((values.v[k] - centre) * scale);
      sums[1].v[k] += g.v[k];
    }
  }
};

float* mean_of(NormKind kind, const Tensor& mean) {
  return kind == NormKind::kLayerNorm ? mean.as<float>() : nullptr;
}

}  // namespace

void norm_forward(const Launch& launch, const NormForward& args) {
  visit_storage(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const ForwardRows<T> rows{.x = args.x.as<T>(),
                              .weight = args.weight.as<T>(),
                              .bias = pointer<T>(args.bias),
                              .y = args.y.as<T>(),
                              .mean = mean_of(args.kind, args.mean),
                              .rstd = args.rstd.as<float>(),
                              .rows = args.x.dim(0),
                              .hidden = args.x.dim(1),
                              .eps = static_cast<float>(args.eps)};
    if (rows.rows == 0) {
      return;
    }
    const bool packed = rows.hidden % kPack<T> == 0 &&
                        aligned_for<kPack<T>>(rows.x, rows.weight, rows.bias, rows.y);
    with_width<kPack<T>>(packed, [&](auto width) {
      cuda::launch(launch.stream, row_blocks(rows.rows, ceil_div(rows.hidden, width())),
                   forward_rows<width(), T>, rows);
    });
  });
}

void norm_backward(const Launch& launch, const NormBackward& args) {
  visit_storage(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const BackwardRows<T> rows{.d_y = args.d_y.as<T>(),
                               .x = args.x.as<T>(),
                               .weight = args.weight.as<T>(),
                               .mean = mean_of(args.kind, args.mean),
                               .rstd = args.rstd.as<float>(),
                               .residual = pointer<T>(args.residual),
                               .d_x = args.d_x.as<T>(),
                               .rows = args.x.dim(0),
                               .hidden = args.x.dim(1)};
    const WeightColumns<T> columns{rows.d_y, rows.x, rows.mean, rows.rstd, rows.hidden};
    const ColumnOutputs<2> outputs{{args.d_weight.as<float>(), pointer<float>(args.d_bias)},
                                   args.write == Write::kAccumulate};
    const bool packed =
        rows.hidden % kPack<T> == 0 &&
        aligned_for<kPack<T>>(rows.d_y, rows.x, rows.weight, rows.residual, rows.d_x);
    with_width<kPack<T>>(packed, [&](auto width) {
      sum_columns(launch, rows.rows, rows.hidden, width, columns, outputs);
      if (rows.rows > 0) {
        cuda::launch(launch.stream, row_blocks(rows.rows, ceil_div(rows.hidden, width())),
                     backward_rows<width(), T>, rows);
      }
    });
  });
}

}  // namespace tandem::cuda
