// What the kernels share: packs of elements that move in one access, the element-wise grid-stride
// loop, sums over a block, and how a kernel is launched.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/cuda/error.h"
#include "core/cuda/launch_geometry.h"
#include "core/elements.h"

namespace tandem::cuda {

/// How many elements a thread takes at a time, as a value.
template <int N>
using Width = std::integral_constant<int, N>;
/// Elements of T in 16 bytes.
template <typename T>
inline constexpr int kPack = static_cast<int>(16 / sizeof(T));

template <typename T, int N>
struct Pack {
  T v[N];
};

template <std::size_t kBytes>
struct WordOf {
  using Type = uint4;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<4> {
  using Type = std::uint32_t;
};
template <>
struct WordOf<2> {
  using Type = std::uint16_t;
};
template <>
struct WordOf<1> {
  using Type = std::uint8_t;
};

/// `from` is aligned to the pack's size, or to 16 bytes where that is less.
template <int N, typename T>
__device__ inline Pack<T, N> load_pack(const T* from) {
  using Word = typename WordOf<N * sizeof(T)>::Type;
  constexpr int kWords = static_cast<int>(N * sizeof(T) / sizeof(Word));
  Word words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = reinterpret_cast<const Word*>(from)[i];
  }
  Pack<T, N> pack;
  memcpy(&pack, words, sizeof(pack));
  return pack;
}
template <typename T, int N>
__device__ inline void store_pack(T* to, const Pack<T, N>& pack) {
  using Word = typename WordOf<N * sizeof(T)>::Type;
  constexpr int kWords = static_cast<int>(N * sizeof(T) / sizeof(Word));
  Word words[kWords];
  memcpy(words, &pack, sizeof(pack));
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    reinterpret_cast<Word*>(to)[i] = words[i];
  }
}

// Storage types: how an element is read as a float, and rounded once when written.
__device__ inline float value_of(float x) { return x; }
__device__ inline float value_of(BFloat16 x) { return bfloat16_value(x.bits); }
__device__ inline float value_of(Float16 x) { return float16_value(x.bits); }
/// Exact: of a type that no storage type is, the value itself.
template <typename T>
__device__ inline auto widened(T x) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return value_of(x);
  } else {
    return x;
  }
}

template <typename T, typename Wide>
__device__ inline T rounded(Wide x) {
  T result;
  if constexpr (std::is_same_v<T, BFloat16>) {
    result.bits = bfloat16_bits(x);
  } else if constexpr (std::is_same_v<T, Float16>) {
    result.bits = float16_bits(x);
  } else {
    result = static_cast<T>(x);
  }
  return result;
}

template <int N, typename T>
__device__ inline Pack<float, N> load(const T* from) {
  const Pack<T, N> pack = load_pack<N>(from);
  Pack<float, N> values;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    values.v[k] = value_of(pack.v[k]);
  }
  return values;
}
template <typename T, int N>
__device__ inline void store(T* to, const Pack<float, N>& values) {
  Pack<T, N> pack;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    pack.v[k] = rounded<T>(values.v[k]);
  }
  store_pack(to, pack);
}

struct Place {
  std::int64_t row, column;
};
/// Where element `i` of rows of `columns` lies. 64-bit division is slow and seldom needed.
__device__ inline Place place_of(std::int64_t i, std::int64_t columns) {
  if ((i >> 32) == 0 && (columns >> 32) == 0) {
    const auto at = static_cast<std::uint32_t>(i), width = static_cast<std::uint32_t>(columns);
    const std::uint32_t row = at / width;
    return {row, at - row * width};
  }
  return {i / columns, i % columns};
}

/// Calls f(i, Width<N>) for packs that start at element i, and f(i, Width<1>) for the rest.
template <int N, typename F>
__global__ void __launch_bounds__(kThreads) for_each_pack(std::int64_t count, F f) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t packs = count / N;
  for (std::int64_t p = first; p < packs; p += stride) {
    f(p * N, Width<N>{});
  }
  if constexpr (N > 1) {
    for (std::int64_t i = packs * N + first; i < count; i += stride) {
      f(i, Width<1>{});
    }
  }
}

/// The same result in every thread: warps by butterfly, then the warps in order. `shared` holds 32
/// values; blocks are whole warps.
template <typename T, typename Op>
__device__ inline T block_reduce(T value, T* shared, const Op& op) {
#pragma unroll
  for (int offset = static_cast<int>(kWarp) / 2; offset > 0; offset /= 2) {
    value = op(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  const unsigned warps = blockDim.x / static_cast<unsigned>(kWarp);
  if (threadIdx.x % static_cast<unsigned>(kWarp) == 0) {
    shared[threadIdx.x / static_cast<unsigned>(kWarp)] = value;
  }
  __syncthreads();
  T result = shared[0];
  for (unsigned w = 1; w < warps; ++w) {
    result = op(result, shared[w]);
  }
  __syncthreads();  // `shared` is used again
  return result;
}

struct Add {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return larger(a, b); }
};

template <typename... P, typename... A>
void launch_grid(cudaStream_t stream, dim3 grid, std::int64_t threads, void (*kernel)(P...),
                 const A&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  // Names the kernel by the types of its arguments.
  check_status(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...), __PRETTY_FUNCTION__);
}
template <typename... P, typename... A>
void launch(cudaStream_t stream, const Geometry& geometry, void (*kernel)(P...), const A&... args) {
  launch_grid(stream, dim3(static_cast<unsigned>(geometry.blocks)), geometry.threads, kernel,
              args...);
}

/// f over `count` elements, N at a time.
template <int N, typename F>
void for_each(cudaStream_t stream, std::int64_t count, Width<N>, const F& f) {
  if (count > 0) {
    launch(stream, elementwise(ceil_div(count, N)), for_each_pack<N, F>, count, f);
  }
}

/// Calls f with Width<N> if `packed`, else with Width<1>.
template <int N, typename F>
void with_width(bool packed, const F& f) {
  if (packed) {
    f(Width<N>{});
  } else {
    f(Width<1>{});
  }
}

/// Calls f with a null pointer of the storage type.
template <typename F>
void visit_storage(DType type, const F& f) {
  switch (type) {
    case DType::kF32:
      return f(static_cast<float*>(nullptr));
    case DType::kBF16:
      return f(static_cast<BFloat16*>(nullptr));
    case DType::kF16:
      return f(static_cast<Float16*>(nullptr));
    default:
      throw InternalError("the cuda device stores fp32, bf16 or fp16, not " +
                          std::string(name_of(type)));
  }
}

/// The first element, or null where the tensor is absent.
template <typename T>
T* pointer(const Tensor& tensor) {
  return tensor.absent() ? nullptr : tensor.as<T>();
}

}  // namespace tandem::cuda
