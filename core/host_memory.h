// Host memory of devices: aligned, touched before use, on huge pages where it is large, and a
// scratch buffer that grows only when a larger shape comes.
#pragma once

#include <cstddef>

#include "core/tensor.h"

namespace tandem {

/// Zero-filled memory, 64-byte aligned; from 4 MiB on of whole pages and advised to huge ones.
/// Throws InternalError with the size if there is none.
void* allocate_host(std::size_t bytes);
void free_host(void* memory) noexcept;

/// Copies between tensors of the same dtype and shape; rank-2 tensors may have strided rows.
void copy_host(const Tensor& from, const Tensor& to);
/// Writes zeros; rank-2 tensors may have strided rows.
void fill_zero_host(const Tensor& tensor);

/// One buffer of temporary values that a device reuses from call to call.
class HostScratch {
 public:
  HostScratch() = default;
  HostScratch(const HostScratch&) = delete;
  HostScratch& operator=(const HostScratch&) = delete;
  ~HostScratch() { free_host(memory_); }

  /// At least `count` elements with unspecified contents; an earlier answer becomes invalid.
  template <typename T>
  T* reserve(std::size_t count) {
    return static_cast<T*>(reserve_bytes(count * sizeof(T)));
  }

 private:
  void* reserve_bytes(std::size_t bytes);

  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tandem
