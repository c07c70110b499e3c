#include "core/cpu/onednn.h"

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace tandem::cpu {
namespace {

std::string_view isa_name(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "sse4.1";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "other instruction set";
  }
}

/// fp16 is converted before oneDNN sees it.
dnnl::memory::data_type onednn_type(DType type) {
  ensure(type == DType::kF32 || type == DType::kBF16, "oneDNN is given fp32 and bf16 only");
  return type == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// op(matrix): a transposition is only a swap of dimensions and strides. The unit stride of a
/// matrix of one column is spelled out, whatever the tensor says.
dnnl::memory::desc of_matrix(const Tensor& matrix, bool transpose) {
  const std::int64_t stride = std::max(matrix.strides[0], matrix.dim(1));
  dnnl::memory::dims dims{matrix.dim(0), matrix.dim(1)}, strides{stride, 1};
  if (transpose) {
    std::swap(dims[0], dims[1]);
    std::swap(strides[0], strides[1]);
  }
  return {dims, onednn_type(matrix.dtype), strides};
}

/// Empty where the library refuses, or has its reference code only.
std::optional<dnnl::matmul::primitive_desc> primitive_of(const Gemm& args,
                                                         const dnnl::engine& engine) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (args.write == Write::kAccumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const auto a = of_matrix(args.a, args.transpose_a), b = of_matrix(args.b, args.transpose_b);
  const auto c = of_matrix(args.c, false);
  std::optional<dnnl::memory::desc> bias;
  if (!args.bias.absent()) {
    bias = of_matrix(args.bias.reshape({1, args.c.dim(1)}), false);
  }
#if DNNL_VERSION_MAJOR >= 3
  auto primitive =
      bias ? dnnl::matmul::primitive_desc(engine, a, b, *bias, c, attributes, /*allow_empty=*/true)
           : dnnl::matmul::primitive_desc(engine, a, b, c, attributes, /*allow_empty=*/true);
#else
  const auto operation = bias ? dnnl::matmul::desc(a, b, *bias, c) : dnnl::matmul::desc(a, b, c);
  dnnl::matmul::primitive_desc primitive(operation, attributes, engine, /*allow_empty=*/true);
#endif
  if (!primitive || std::string_view(primitive.impl_info_str()).starts_with("ref")) {
    return std::nullopt;
  }
  return primitive;
}

}  // namespace

ThreadCount::ThreadCount(int threads)
    : before_(omp_get_max_threads()), dynamic_(omp_get_dynamic()) {
  omp_set_dynamic(0);
  omp_set_num_threads(std::min(threads, omp_get_thread_limit()));
}

ThreadCount::~ThreadCount() {
  omp_set_num_threads(before_);
  omp_set_dynamic(dynamic_);
}

dnnl::matmul::primitive_desc make_matmul(const Gemm& args, const dnnl::engine& engine) {
  std::string why = "it has no kernel for it";
  try {
    if (const auto primitive = primitive_of(args, engine)) {
      return *primitive;
    }
  } catch (const dnnl::error& error) {
    why = error.what();
  }
  throw matmul_error(args, why);
}

InternalError matmul_error(const Gemm& args, const std::string& why) {
  return InternalError("oneDNN " + onednn_version() + ", gemm " + args.c.shape.to_string() +
                       " over " + std::to_string(args.inner()) + ": " + why);
}

std::size_t scratchpad_bytes(const dnnl::matmul::primitive_desc& product, int threads) {
  constexpr std::size_t kOfAThread = std::size_t{2} << 20;
  const std::size_t bytes = product.scratchpad_desc().get_size();
  return bytes == 0 ? 0
                    : std::max(bytes, kOfAThread * static_cast<std::size_t>(std::min(threads, 8)));
}

bool multiplies_bf16() {
  static const bool yes = [] {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const auto matrix = [](DType type) { return Tensor(nullptr, type, {64, 64}); };
    for (const DType output : {DType::kBF16, DType::kF32}) {
      if (!primitive_of({.a = matrix(DType::kBF16),
                         .b = matrix(DType::kBF16),
                         .c = matrix(output),
                         .transpose_b = true,
                         .write = output == DType::kF32 ? Write::kAccumulate : Write::kOverwrite},
                        engine)) {
        return false;
      }
    }
    return true;
  }();
  return yes;
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " (" +
         std::string(isa_name(dnnl::get_effective_cpu_isa())) + ")";
}

}  // namespace tandem::cpu
