// Memory that stands for a GPU's: the host that touches it crashes. Every allocation is mapped
// twice; the address that is given out cannot be read or written, and the device's own threads
// translate it to the one that can. As on a GPU, all devices of a process share the addresses.
#pragma once

#include <cstddef>

#include "core/tensor.h"

namespace tandem::testing {

/// Zero-filled; aligned to a page.
void* allocate_guarded(std::size_t bytes);
/// Throws InternalError where `memory` was not given out, or is freed already.
void free_guarded(void* memory);

/// The same tensor where it can be touched; one that lies in host memory as it is.
Tensor reachable(const Tensor& tensor);
/// The same, for what a kernel reads or writes: throws InternalError for elements in host memory.
Tensor reachable_on_device(const Tensor& tensor);

}  // namespace tandem::testing
