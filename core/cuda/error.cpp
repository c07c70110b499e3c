#include "core/cuda/error.h"

#include <cstdio>
#include <string>

#include "core/error.h"

namespace tandem::cuda {
namespace {

[[noreturn]] void fail(std::string_view call, std::string_view name, std::string_view words,
                       const std::source_location& where) {
  throw InternalError(std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": " +
                      std::string(call) + ": " + std::string(words) + " (" + std::string(name) +
                      ")");
}

}  // namespace

void check_status(cudaError_t status, std::string_view call, std::source_location where) {
  if (status != cudaSuccess) [[unlikely]] {
    fail(call, cudaGetErrorName(status), cudaGetErrorString(status), where);
  }
}

void check_status(cublasStatus_t status, std::string_view call, std::source_location where) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {
    fail(call, cublasGetStatusName(status), cublasGetStatusString(status), where);
  }
}

void report_status(cudaError_t status, std::string_view call) noexcept {
  // A process that is ending has lost its context already: nothing to report.
  if (status != cudaSuccess && status != cudaErrorCudartUnloading) {
    std::fprintf(stderr, "tandem: %.*s: %s\n", static_cast<int>(call.size()), call.data(),
                 cudaGetErrorString(status));
  }
}

}  // namespace tandem::cuda
