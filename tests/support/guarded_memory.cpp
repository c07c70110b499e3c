#include "tests/support/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <shared_mutex>

#include "core/error.h"

namespace tandem::testing {

namespace {

struct Mapping {
  std::size_t bytes;
  std::byte* reachable;
};

/// A driver's view of the process, which is why it is one for all devices.
struct AddressSpace {
  std::shared_mutex mutex;
  std::map<std::byte*, Mapping> mappings;  ///< by the address given out
};

AddressSpace& space() {
  static AddressSpace all;
  return all;
}

std::byte* map(int file, std::size_t bytes, int protection) {
  void* memory = mmap(nullptr, bytes, protection, MAP_SHARED, file, 0);
  ensure(memory != MAP_FAILED, "guarded memory cannot be mapped");
  return static_cast<std::byte*>(memory);
}

}  // namespace

void* allocate_guarded(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t rounded = (bytes / page + 1) * page;
  const int file = memfd_create("tandem guarded", MFD_CLOEXEC);
  ensure(file >= 0 && ftruncate(file, static_cast<off_t>(rounded)) == 0,
         "guarded memory cannot be made");
  std::byte* const given = map(file, rounded, PROT_NONE);
  const Mapping mapping{rounded, map(file, rounded, PROT_READ | PROT_WRITE)};
  close(file);
  const std::unique_lock lock(space().mutex);
  space().mappings[given] = mapping;
  return given;
}

void free_guarded(void* memory) {
  const std::unique_lock lock(space().mutex);
  const auto found = space().mappings.find(static_cast<std::byte*>(memory));
  ensure(found != space().mappings.end(), "guarded memory is freed that was never given out");
  munmap(found->second.reachable, found->second.bytes);
  munmap(found->first, found->second.bytes);
  space().mappings.erase(found);
}

Tensor reachable(const Tensor& tensor) {
  const std::shared_lock lock(space().mutex);
  auto after = space().mappings.upper_bound(tensor.data);
  if (tensor.data == nullptr || after == space().mappings.begin()) {
    return tensor;
  }
  const auto& [given, mapping] = *--after;
  if (tensor.data >= given + mapping.bytes) {
    return tensor;
  }
  Tensor moved = tensor;
  moved.data = mapping.reachable + (tensor.data - given);
  return moved;
}

Tensor reachable_on_device(const Tensor& tensor) {
  const Tensor moved = reachable(tensor);
  ensure(moved.data != tensor.data || tensor.absent() || tensor.numel() == 0,
         "a kernel is given host memory");
  return moved;
}

}  // namespace tandem::testing
