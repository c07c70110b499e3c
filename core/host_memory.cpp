#include "core/host_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace tandem {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugeFrom = std::size_t{4} << 20;

void check_matrix(const Tensor& tensor) {
  ensure(tensor.is_contiguous() || (tensor.rank() == 2 && tensor.strides[1] == 1),
         "only rank-2 tensors may have strided rows");
}

}  // namespace

void* allocate_host(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugeFrom ? kPage : kLine;
  const std::size_t rounded = (bytes / alignment + 1) * alignment;
  void* memory = rounded > bytes ? std::aligned_alloc(alignment, rounded) : nullptr;
  if (memory == nullptr) {
    throw InternalError("cannot allocate " + std::to_string(bytes) + " bytes of host memory");
  }
  if (bytes >= kHugeFrom) {
    madvise(memory, rounded, MADV_HUGEPAGE);  // a refusal costs speed, not correctness
  }
  std::memset(memory, 0, rounded);
  return memory;
}

void free_host(void* memory) noexcept { std::free(memory); }

void copy_host(const Tensor& from, const Tensor& to) {
  ensure(from.dtype == to.dtype && from.shape == to.shape, "copy between different tensors");
  check_matrix(from);
  check_matrix(to);
  if (from.numel() == 0) {
    return;
  }
  if (from.is_contiguous() && to.is_contiguous()) {
    std::memmove(to.data, from.data, from.bytes());
    return;
  }
  const std::size_t element = size_of(from.dtype);
  const std::size_t row_bytes = static_cast<std::size_t>(from.dim(1)) * element;
  for (std::int64_t r = 0; r < from.dim(0); ++r) {
    std::memcpy(to.data + static_cast<std::size_t>(r * to.strides[0]) * element,
                from.data + static_cast<std::size_t>(r * from.strides[0]) * element, row_bytes);
  }
}

void fill_zero_host(const Tensor& tensor) {
  check_matrix(tensor);
  if (tensor.numel() == 0) {
    return;
  }
  if (tensor.is_contiguous()) {
    std::memset(tensor.data, 0, tensor.bytes());
    return;
  }
  const std::size_t element = size_of(tensor.dtype);
  for (std::int64_t r = 0; r < tensor.dim(0); ++r) {
    std::memset(tensor.data + static_cast<std::size_t>(r * tensor.strides[0]) * element, 0,
                static_cast<std::size_t>(tensor.dim(1)) * element);
  }
}

void* HostScratch::reserve_bytes(std::size_t bytes) {
  if (bytes > size_) {
    free_host(memory_);
    memory_ = nullptr;
    size_ = 0;
    memory_ = allocate_host(bytes);
    size_ = bytes;
  }
  return memory_;
}

}  // namespace tandem
