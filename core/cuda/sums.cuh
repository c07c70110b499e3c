// Sums in two stages with a fixed order: over the rows of a matrix in fp32, and over whole tensors
// in double. The first stage leaves partial sums in the stream's scratch memory, the second adds
// them; neither uses atomics, and the number of parts does not depend on the GPU.
#pragma once

#include "core/cuda/kernel.cuh"
#include "core/cuda/kernels.h"

namespace tandem::cuda {

/// Where kSums sums over rows go; a null output is left out.
template <int kSums>
struct ColumnOutputs {
  float* out[kSums];
  bool accumulate;

  __device__ void put(int sum, std::int64_t column, float value) const {
    if (out[sum] != nullptr) {
      out[sum][column] = accumulate ? out[sum][column] + value : value;
    }
  }
};

/// f(row, column, sums, Width<N>) adds one pack of each of the kSums addends. Block (tile, chunk).
template <int kSums, int N, typename F>
__global__ void __launch_bounds__(kThreads)
    column_partials(std::int64_t rows, std::int64_t columns, std::int64_t rows_a_chunk, F f,
                    float* partials, ColumnOutputs<kSums> outputs) {
  constexpr int kRows = static_cast<int>(kThreads / kWarp);
  __shared__ float shared[kRows][kWarp * N];
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int sub = static_cast<int>(threadIdx.x / kWarp);
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kWarp + lane) * N;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * rows_a_chunk;
  const std::int64_t end = begin + rows_a_chunk < rows ? begin + rows_a_chunk : rows;

  Pack<float, N> sums[kSums];
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sums[s].v[k] = 0.0f;
    }
  }
  if (column < columns) {
    for (std::int64_t r = begin + sub; r < end; r += kRows) {
      f(r, column, sums, Width<N>{});
    }
  }
#pragma unroll  // an index known when compiling keeps the sums in registers
  for (int s = 0; s < kSums; ++s) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      shared[sub][lane * N + k] = sums[s].v[k];
    }
    __syncthreads();
    // One thread for each column of the tile, side by side.
    for (int t = static_cast<int>(threadIdx.x); t < kWarp * N; t += static_cast<int>(kThreads)) {
      const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kWarp * N + t;
      if (c < columns) {
        float total = shared[0][t];
        for (int i = 1; i < kRows; ++i) {
          total += shared[i][t];
        }
        if (gridDim.y == 1) {
          outputs.put(s, c, total);
        } else {
          partials[(static_cast<std::int64_t>(blockIdx.y) * kSums + s) * columns + c] = total;
        }
      }
    }
    __syncthreads();
  }
}

template <int kSums>
struct AddChunks {
  const float* partials;
  std::int64_t columns, chunks;
  ColumnOutputs<kSums> outputs;

  __device__ void operator()(std::int64_t i, Width<1>) const {
    const Place place = place_of(i, columns);  // row: which sum
    float total = 0.0f;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      total += partials[chunk * kSums * columns + i];
    }
    outputs.put(static_cast<int>(place.row), place.column, total);
  }
};

template <int kSums, int N, typename F>
void sum_columns(const Launch& launch, std::int64_t rows, std::int64_t columns, Width<N>,
                 const F& f, const ColumnOutputs<kSums>& outputs) {
  if (columns == 0) {
    return;
  }
  const auto floats = launch.scratch_bytes / static_cast<std::int64_t>(sizeof(float));
  const ColumnGeometry geometry = column_blocks(rows, columns, N, kSums, floats);
  auto* partials = reinterpret_cast<float*>(launch.scratch);
  launch_grid(launch.stream,
              dim3(static_cast<unsigned>(geometry.tiles), static_cast<unsigned>(geometry.chunks)),
              kThreads, column_partials<kSums, N, F>, rows, columns, geometry.rows_a_chunk, f,
              partials, outputs);
  if (geometry.chunks > 1) {
    for_each(launch.stream, kSums * columns, Width<1>{},
             AddChunks<kSums>{partials, columns, geometry.chunks, outputs});
  }
}

/// f(i, Width<N>) gives the sum of N addends from the i-th on, in double.
template <int N, typename F>
__global__ void __launch_bounds__(kThreads)
    sum_partials(std::int64_t count, F f, double* partials) {
  __shared__ double shared[kWarp];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t packs = count / N;
  double sum = 0.0;
  for (std::int64_t p = first; p < packs; p += stride) {
    sum += f(p * N, Width<N>{});
  }
  if constexpr (N > 1) {
    for (std::int64_t i = packs * N + first; i < count; i += stride) {
      sum += f(i, Width<1>{});
    }
  }
  sum = block_reduce(sum, shared, Add());
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
  }
}

/// One block: out (+)= factor * sum of the partial sums.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    finish_sum(const T* partials, std::int64_t count, T factor, bool accumulate, T* out) {
  __shared__ T shared[kWarp];
  T sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    sum += partials[i];
  }
  sum = block_reduce(sum, shared, Add());
  if (threadIdx.x == 0) {
    *out = accumulate ? *out + factor * sum : factor * sum;
  }
}

template <int N, typename F>
void sum_all(const Launch& launch, std::int64_t count, Width<N>, const F& f, double factor,
             Write write, double* out) {
  auto* partials = reinterpret_cast<double*>(launch.scratch);
  const Geometry geometry = sum_blocks(ceil_div(count, N));
  if (count > 0) {
    cuda::launch(launch.stream, geometry, sum_partials<N, F>, count, f, partials);
  }
  cuda::launch(launch.stream, {.blocks = 1, .threads = kThreads}, finish_sum<double>, partials,
               count > 0 ? geometry.blocks : 0, factor, write == Write::kAccumulate, out);
}

}  // namespace tandem::cuda
