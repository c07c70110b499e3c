// The cuda device: cuBLASLt for matrix products, kernels of our own for the rest, all of it queued
// on explicit streams of one GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "core/device.h"

namespace tandem::cuda {

struct CudaDeviceOptions {
  int ordinal = 0;    ///< among the GPUs that the driver shows this process
  bool tf32 = false;  ///< fp32 products may round their inputs to 10 bits of mantissa
};

/// Several devices may share a GPU, each used by the threads of one rank. Throws InternalError with
/// the driver's words if the GPU cannot be used.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);

/// GPUs that the driver shows this process; throws InternalError with the driver's own words if it
/// is unusable.
int device_count();

/// The CUDA stream behind a stream that a cuda device made.
cudaStream_t native(Stream& stream);

}  // namespace tandem::cuda
