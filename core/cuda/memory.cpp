#include "core/cuda/memory.h"

#include <algorithm>
#include <string>

#include "core/cuda/error.h"
#include "core/error.h"

namespace tandem::cuda {

void* allocate_zeroed(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, std::max<std::size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // it does not stick to the next call
    std::size_t available = 0, total = 0;
    check_status(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    throw InternalError("the GPU has no " + std::to_string(bytes / kMiB) + " MiB (" +
                        std::to_string(bytes) + " bytes) left: " +
                        std::to_string(available / kMiB) + " of " + std::to_string(total / kMiB) +
                        " MiB are free. Fewer rows a micro-batch, more tensor-parallel ranks or "
                        "fewer ranks on this GPU need less");
  }
  check_status(status, "cudaMalloc of " + std::to_string(bytes) + " bytes");
  // This thread's own default stream: waiting for it waits for no other rank.
  check_status(cudaMemsetAsync(memory, 0, bytes, cudaStreamPerThread), "cudaMemsetAsync");
  check_status(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
  return memory;
}

bool is_pageable(const void* memory) {
  cudaPointerAttributes attributes{};
  check_status(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered;
}

Staging::~Staging() {
  for (const Half& half : halves_) {
    if (half.memory != nullptr) {
      report_status(cudaEventDestroy(half.left), "cudaEventDestroy (staging)");
      report_status(cudaFreeHost(half.memory), "cudaFreeHost (staging)");
    }
  }
}

void Staging::allocate() {
  for (Half& half : halves_) {
    void* memory = nullptr;
    check_status(cudaEventCreateWithFlags(&half.left, cudaEventDisableTiming),
                 "cudaEventCreate (staging)");
    check_status(cudaMallocHost(&memory, kLargest), "cudaMallocHost (staging)");
    half.memory = static_cast<std::byte*>(memory);
  }
}

std::byte* Staging::take(std::size_t bytes) {
  constexpr std::size_t kLine = 256;
  if (halves_[0].memory == nullptr) {
    allocate();
  }
  if (used_ + bytes > kLargest) {
    check_status(cudaEventRecord(halves_[current_].left, stream_), "cudaEventRecord (staging)");
    current_ = 1 - current_;
    used_ = 0;
    check_status(cudaEventSynchronize(halves_[current_].left), "cudaEventSynchronize (staging)");
  }
  std::byte* memory = halves_[current_].memory + used_;
  used_ += (bytes + kLine - 1) / kLine * kLine;
  return memory;
}

}  // namespace tandem::cuda
