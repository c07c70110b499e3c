// The part of oneDNN's API that differs between its 2.x and 3.x series, and what we ask of it.
#pragma once

#include <dnnl.hpp>

#include <optional>
#include <string>

namespace tandem::cpu {

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

/// "2.6.3 (avx2)": the version that runs and the instruction set it settled on.
std::string onednn_version();

}  // namespace tandem::cpu
