#include "core/cuda/error.h"

#include <cstdio>
#include <string>

#include "core/error.h"

namespace tandem::cuda {
namespace {

/// "cudaStreamSynchronize (compute)"
std::string named(std::string_view call, std::string_view of) {
  return std::string(call) + (of.empty() ? "" : " (" + std::string(of) + ")");
}

[[noreturn]] void fail(const std::string& call, std::string_view name, std::string_view words,
                       const std::source_location& where) {
  throw InternalError(std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": " +
                      call + ": " + std::string(words) + " (" + std::string(name) + ")");
}

}  // namespace

void check_status(cudaError_t status, std::string_view call, std::string_view of,
                  std::source_location where) {
  if (status != cudaSuccess) [[unlikely]] {
    fail(named(call, of), cudaGetErrorName(status), cudaGetErrorString(status), where);
  }
}

void check_status(cublasStatus_t status, std::string_view call, std::string_view of,
                  std::source_location where) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {
    fail(named(call, of), cublasGetStatusName(status), cublasGetStatusString(status), where);
  }
}

void report_status(cudaError_t status, std::string_view call, std::string_view of) noexcept {
  // A process that is ending has lost its context already: nothing to report.
  if (status != cudaSuccess && status != cudaErrorCudartUnloading) {
    std::fprintf(stderr, "tandem: %.*s%s%.*s%s: %s\n", static_cast<int>(call.size()), call.data(),
                 of.empty() ? "" : " (", static_cast<int>(of.size()), of.data(),
                 of.empty() ? "" : ")", cudaGetErrorString(status));
  }
}

}  // namespace tandem::cuda
