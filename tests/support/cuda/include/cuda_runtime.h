// Stands in for CUDA's header of this name: the words of the language that kernels use, and blocks
// of threads. Each thread of a block is a fiber, so that __syncthreads() and shuffles mean what
// they mean on a GPU; blocks run one after the other.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __launch_bounds__(...)

// Aligned as a GPU wants them: an access elsewhere is an error there and under UBSan.
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3() = default;
  constexpr explicit dim3(unsigned width, unsigned height = 1, unsigned depth = 1)
      : x(width), y(height), z(depth) {}
};
extern thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace tandem::testing {

/// Runs `kernel` in every thread of the grid. Aborts where threads of a block wait for each other
/// in different places.
cudaError_t run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& kernel);
/// Blocks until all threads of the block, or of the warp, are here.
void wait_for_block();
void wait_for_warp();
/// Eight bytes for each thread of the block.
std::uint64_t& exchange_slot(unsigned thread);

}  // namespace tandem::testing

template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A... args) {
  return tandem::testing::run_grid(*config, [=] { kernel(args...); });
}

inline void __syncthreads() { tandem::testing::wait_for_block(); }

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  if (mask != 0xffffffffu) {
    __builtin_trap();  // no kernel does
  }
  std::memcpy(&tandem::testing::exchange_slot(threadIdx.x), &value, sizeof(T));
  tandem::testing::wait_for_warp();
  T other;
  std::memcpy(&other, &tandem::testing::exchange_slot(threadIdx.x ^ static_cast<unsigned>(lanes)),
              sizeof(T));
  tandem::testing::wait_for_warp();
  return other;
}

inline int atomicAdd(int* at, int value) {
  const int before = *at;
  *at += value;
  return before;
}
