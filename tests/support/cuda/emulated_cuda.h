// The cuda device, run by the host: core/cuda compiled against stand-ins for CUDA's headers, its
// kernels as they are, one fiber for each of a block's threads, and cuBLAS replaced by plain loops.
// It finds mistakes of index, reduction, launch geometry and argument without a GPU. What only a
// GPU shows, it does not: asynchrony, real alignment, and what libraries do.
#pragma once

#include <memory>

#include "core/device.h"

namespace tandem::testing {

/// `epilogues`: whether the matmul library knows any, or everything is run step by step.
std::unique_ptr<Device> make_emulated_cuda_device(bool epilogues);

}  // namespace tandem::testing
