// Device memory, and the pinned memory through which host tensors that are not pinned reach it
// without holding up the host.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

#include "core/tensor.h"

namespace tandem::cuda {

/// Zero-filled memory of the current GPU. Throws InternalError with the size and what is free.
void* allocate_zeroed(std::size_t bytes);

/// Memory that CUDA knows (a GPU's, or pinned) can be copied in the background; other memory of the
/// host cannot.
bool is_pageable(const void* memory);

/// Pinned memory of one stream, given out in turn from two halves. A half is used again once the
/// stream has passed what was queued when it was left.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  /// Both halves; else the first call of take() does.
  void allocate();
  /// Larger pieces are left to the driver.
  static constexpr std::size_t kLargest = std::size_t{4} << 20;
  /// `bytes` <= kLargest of pinned memory, for what is queued on the stream before the next call.
  std::byte* take(std::size_t bytes);

 private:
  struct Half {
    std::byte* memory = nullptr;
    cudaEvent_t left = nullptr;
  };
  cudaStream_t stream_;
  std::array<Half, 2> halves_;
  std::size_t current_ = 0;
  std::size_t used_ = 0;
};

}  // namespace tandem::cuda
