#include "core/cpu/onednn.h"

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

/// What make_matmul says to a product of this type, of a shape like any other.
std::optional<dnnl::matmul::primitive_desc> make_square(DType input, DType output) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto matrix = [](DType type, dnnl::memory::dims strides) {
    return dnnl::memory::desc({64, 64}, onednn_type(type), std::move(strides));
  };
  return make_matmul({.a = matrix(input, {64, 1}),
                      .b = matrix(input, {1, 64}),
                      .c = matrix(output, {64, 1}),
                      .bias = std::nullopt,
                      .accumulate = output != input},
                     engine);
}

}  // namespace

dnnl::memory::data_type onednn_type(DType type) {
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

bool multiplies_bf16() {
  static const bool yes = make_square(DType::kBF16, DType::kBF16) != std::nullopt &&
                          make_square(DType::kBF16, DType::kF32) != std::nullopt;
  return yes;
}

bool multiplies_in_tiles(DType type) {
  const auto in_tiles = [](DType of) {
    const auto square = make_square(of, of);
    return square && std::string_view(square->impl_info_str()).starts_with("brg");
  };
  static const bool fp32 = in_tiles(DType::kF32), bf16 = in_tiles(DType::kBF16);
  return type == DType::kBF16 ? bf16 : fp32;
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " (" +
         std::string(isa_name(dnnl::get_effective_cpu_isa())) + ")";
}

}  // namespace tandem::cpu
