// The one function that libtandem_cuda.so exports.
#include "parallel/cuda_module.h"

#include <cuda_profiler_api.h>

#include "core/cuda/cuda_device.h"
#ifdef TANDEM_HAVE_NCCL
#include "parallel/nccl/nccl_world.h"
#endif

namespace tandem {

namespace {

constexpr CudaModule kModule = {
    .version = kCudaModuleVersion,
    .make_device =
        [](const CudaDeviceChoice& choice) {
          return cuda::make_cuda_device({.ordinal = choice.ordinal, .tf32 = choice.tf32});
        },
#ifdef TANDEM_HAVE_NCCL
    .make_nccl_world = nccl::make_nccl_world,
#endif
    // A profiler that does not listen is no error.
    .profiler_start = [] { static_cast<void>(cudaProfilerStart()); },
    .profiler_stop = [] { static_cast<void>(cudaProfilerStop()); },
};

}  // namespace

}  // namespace tandem

extern "C" __attribute__((visibility("default"))) const tandem::CudaModule* tandem_cuda_module() {
  return &tandem::kModule;
}
