#include "core/device.h"

#include "core/host_memory.h"

namespace tandem {

void* Device::allocate_staging(std::size_t bytes) { return allocate_host(bytes); }

void Device::deallocate_staging(void* memory) noexcept { free_host(memory); }

}  // namespace tandem
