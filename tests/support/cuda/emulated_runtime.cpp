#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "cublas_v2.h"
#include "cuda_runtime_api.h"

struct EmulatedStream {};
struct EmulatedEvent {};

namespace {

/// What cudaMalloc and cudaMallocHost gave out, so that copies can tell memory apart.
class Allocations {
 public:
  cudaError_t allocate(void** memory, std::size_t bytes, cudaMemoryType type) {
    // Never more than is asked for: AddressSanitizer sees every byte beyond.
    if (bytes > (std::size_t{1} << 40) || posix_memalign(memory, 256, bytes) != 0) {
      return cudaErrorMemoryAllocation;
    }
    std::memset(*memory, 0xff, bytes);
    const std::scoped_lock lock(mutex_);
    ranges_[static_cast<std::byte*>(*memory)] = {bytes, type};
    return cudaSuccess;
  }
  cudaError_t free(void* memory) {
    const std::scoped_lock lock(mutex_);
    if (memory != nullptr && ranges_.erase(static_cast<std::byte*>(memory)) == 0) {
      return cudaErrorInvalidValue;
    }
    std::free(memory);
    return cudaSuccess;
  }
  cudaMemoryType type_of(const void* memory) {
    const std::scoped_lock lock(mutex_);
    auto* address = static_cast<std::byte*>(const_cast<void*>(memory));
    auto next = ranges_.upper_bound(address);
    if (next == ranges_.begin()) {
      return cudaMemoryTypeUnregistered;
    }
    const auto& [begin, range] = *--next;
    return address < begin + std::max<std::size_t>(range.bytes, 1) ? range.type
                                                                   : cudaMemoryTypeUnregistered;
  }

 private:
  struct Range {
    std::size_t bytes;
    cudaMemoryType type;
  };
  std::mutex mutex_;
  std::map<std::byte*, Range> ranges_;
};

Allocations& allocations() {
  static Allocations all;
  return all;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t) { return "cudaErrorEmulated"; }
const char* cudaGetErrorString(cudaError_t) { return "an emulated error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cublasGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_EMULATED"; }
const char* cublasGetStatusString(cublasStatus_t) { return "an emulated status"; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
  return ordinal == 0 ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"emulated GPU", 9, 0, 1, std::size_t{1} << 30};
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return allocations().allocate(memory, bytes, cudaMemoryTypeDevice);
}
cudaError_t cudaFree(void* memory) { return allocations().free(memory); }
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return allocations().allocate(memory, bytes, cudaMemoryTypeHost);
}
cudaError_t cudaFreeHost(void* memory) { return allocations().free(memory); }
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  *available = *total = std::size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  attributes->type = allocations().type_of(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind, cudaStream_t) {
  if (width > to_pitch || width > from_pitch) {
    return cudaErrorInvalidValue;
  }
  for (std::size_t row = 0; row < height; ++row) {
    std::memcpy(static_cast<std::byte*>(to) + row * to_pitch,
                static_cast<const std::byte*>(from) + row * from_pitch, width);
  }
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset2DAsync(void* memory, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t) {
  if (width > pitch) {
    return cudaErrorInvalidValue;
  }
  for (std::size_t row = 0; row < height; ++row) {
    std::memset(static_cast<std::byte*>(memory) + row * pitch, value, width);
  }
  return cudaSuccess;
}

// Work is done when it is queued: there is nothing to order.
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -1;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*function)(void*), void* argument) {
  function(argument);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
