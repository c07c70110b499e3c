// The part of oneDNN's API that differs between its 2.x and 3.x series, and what we ask of it.
#pragma once

#include <dnnl.hpp>

#include <cstddef>
#include <string>

#include "core/device.h"
#include "core/error.h"

namespace tandem::cpu {

/// oneDNN takes its thread count from the calling thread's OpenMP settings, which belong to whoever
/// called us: set for one call, then put back. It leaves out the work of threads it counted on and
/// did not get, so it counts on no more than OMP_THREAD_LIMIT, and OMP_DYNAMIC takes none away.
class ThreadCount {
 public:
  explicit ThreadCount(int threads);
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;
  ~ThreadCount();

 private:
  int before_;
  int dynamic_;
};

/// How oneDNN computes a product of fp32 or bf16 matrices, with a scratchpad of ours. Their memory
/// is not read, and may be none. To be called under the ThreadCount that it will run with. Throws
/// InternalError, worded by matmul_error, where this library refuses it on this CPU or would run
/// its slow reference code.
dnnl::matmul::primitive_desc make_matmul(const Gemm& args, const dnnl::engine& engine);

/// "oneDNN 2.6.3 (avx2), gemm [2048, 512] over 384: why"
InternalError matmul_error(const Gemm& args, const std::string& why);

/// Bytes of scratchpad to have ready for a product on a device of `threads` threads: none where it
/// needs none, and else at least 2 MiB for each of the first eight. What kernels of AVX-512 ask for
/// hardly follows their sizes, so that a later micro-batch of fewer rows would often let the buffer
/// grow; of 2400 products of up to 2048 x 4096 over 3072, with up to eight threads, none asked for
/// more than 1.7 MiB a thread. More threads share the contraction of narrow products, and some do.
std::size_t scratchpad_bytes(const dnnl::matmul::primitive_desc& product, int threads);

/// Whether oneDNN multiplies bf16 itself on this CPU, into bf16 and into fp32.
bool multiplies_bf16();

/// "2.6.3 (avx2)": the version that runs and the instruction set it settled on.
std::string onednn_version();

}  // namespace tandem::cpu
