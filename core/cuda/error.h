// Every CUDA and cuBLAS call is checked: a failure becomes an InternalError with the call, the
// library's own words and the place.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

namespace tandem::cuda {

/// `call`: what was called; `of`: on what, such as a stream's name. Nothing is allocated unless it
/// failed.
void check_status(cudaError_t status, std::string_view call, std::string_view of = {},
                  std::source_location where = std::source_location::current());
void check_status(cublasStatus_t status, std::string_view call, std::string_view of = {},
                  std::source_location where = std::source_location::current());

/// For destructors: prints instead of throwing.
void report_status(cudaError_t status, std::string_view call, std::string_view of = {}) noexcept;

}  // namespace tandem::cuda
