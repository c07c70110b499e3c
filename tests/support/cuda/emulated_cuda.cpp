#include "tests/support/cuda/emulated_cuda.h"

#include "core/cuda/cuda_device.h"
#include "core/cuda/matmul.h"
#include "tests/support/cuda/column_major.h"

namespace tandem::cuda {
namespace {

/// What the next device's matmul library knows.
thread_local bool next_has_epilogues = true;

}  // namespace

class Matmul::Library {
 public:
  bool epilogues = next_has_epilogues;
};

Matmul::Matmul() : library_(std::make_unique<Library>()) {}
Matmul::~Matmul() = default;

bool Matmul::run(CudaStream& stream, const MatmulCall& call) {
  ensure(stream.workspace() != nullptr, "no workspace");
  if (call.description.epilogue != Epilogue::kNone && !library_->epilogues) {
    return false;
  }
  testing::execute_column_major(call);
  return true;
}

std::string Matmul::version() { return "plain loops"; }

}  // namespace tandem::cuda

namespace tandem::testing {

std::unique_ptr<Device> make_emulated_cuda_device(bool epilogues) {
  cuda::next_has_epilogues = epilogues;
  return cuda::make_cuda_device({});
}

}  // namespace tandem::testing
