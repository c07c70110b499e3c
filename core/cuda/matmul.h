// Matrix products through cuBLASLt. A plan is tuned once for each description, on the first
// arguments that come, and kept. Belongs to one device, and is used by one host thread at a time.
#pragma once

#include <memory>

#include "core/cuda/matmul_plan.h"
#include "core/cuda/stream.h"

namespace tandem::cuda {

class Matmul {
 public:
  Matmul();
  ~Matmul();

  /// Queues the product. False, with nothing done, if the library has no algorithm for the
  /// epilogue; a product without an epilogue always runs. The first call of a description times the
  /// library's candidates and waits for them; D, and aux where it is written, are overwritten
  /// meanwhile.
  bool run(CudaStream& stream, const MatmulCall& call);
  /// "cuBLASLt 13.1.0"
  static std::string version();

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

}  // namespace tandem::cuda
