#include "core/cpu/onednn.h"

#include <omp.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error.h"

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

dnnl::memory::data_type onednn_type(DType type) {
  ensure(type == DType::kF32 || type == DType::kBF16, "oneDNN is given fp32 and bf16 only");
  return type == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

std::optional<dnnl::matmul::primitive_desc> make_matmul(const MatmulDescription& description,
                                                        const dnnl::engine& engine) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (description.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const auto& [a, b, c, bias, accumulate] = description;
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

std::size_t scratchpad_bytes(const dnnl::matmul::primitive_desc& product, int threads) {
  constexpr std::size_t kOfAThread = std::size_t{2} << 20;
  const std::size_t bytes = product.scratchpad_desc().get_size();
  return bytes == 0 ? 0
                    : std::max(bytes, kOfAThread * static_cast<std::size_t>(std::min(threads, 8)));
}

bool multiplies_bf16() {
  static const bool yes = [] {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    using Type = dnnl::memory::data_type;
    const auto matrix = [](Type type, dnnl::memory::dims strides) {
      return dnnl::memory::desc({64, 64}, type, std::move(strides));
    };
    for (const Type output : {Type::bf16, Type::f32}) {
      if (!make_matmul({.a = matrix(Type::bf16, {64, 1}),
                        .b = matrix(Type::bf16, {1, 64}),
                        .c = matrix(output, {64, 1}),
                        .bias = std::nullopt,
                        .accumulate = output == Type::f32},
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
