// The part of oneDNN's API that differs between its 2.x and 3.x series, and what we ask of it.
#pragma once

#include <dnnl.hpp>

#include <cstddef>
#include <optional>
#include <string>

#include "core/dtype.h"

namespace tandem::cpu {

/// Of what oneDNN multiplies itself: fp16 is always converted.
dnnl::memory::data_type onednn_type(DType type);

/// c = a b [+ bias] [+ c] as oneDNN sees it: plain or transposed 2-d memory.
struct MatmulDescription {
  dnnl::memory::desc a, b, c;
  std::optional<dnnl::memory::desc> bias;  ///< [1, n]
  bool accumulate = false;                 ///< a sum post-op
};

/// With user scratchpad; empty if this library refuses it on this CPU, or would run its slow
/// reference code.
std::optional<dnnl::matmul::primitive_desc> make_matmul(const MatmulDescription& description,
                                                        const dnnl::engine& engine);

/// Whether oneDNN multiplies bf16 itself on this CPU, into bf16 and into fp32.
bool multiplies_bf16();

/// Whether oneDNN multiplies operands of this type, fp32 or bf16, in blocks that it tiles itself
/// ("brgemm", as with AVX-512), or with a BLAS' gemm.
bool multiplies_in_tiles(DType type);

/// Bytes for each thread, of the scratchpad that the products of a device share if they need one.
/// What one asks for does not grow with its sizes (odd ones are copied), so that a micro-batch of
/// fewer rows could ask for more than all before it: of 2400 products in tiles, of up to 2048 x
/// 4096 over 3072, none asked for more than 1.7 MiB.
inline constexpr std::size_t kLeastScratchpad = std::size_t{2} << 20;

/// "2.6.3 (avx2)": the version that runs and the instruction set it settled on.
std::string onednn_version();

}  // namespace tandem::cpu
