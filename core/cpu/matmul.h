// Matrix products through oneDNN. Primitives are made once for each shape and kept; types that the
// library refuses on this CPU (bf16 without AVX-512) are converted block by block and multiplied in
// fp32. Belongs to one device, and is used by one host thread at a time.
#pragma once

#include <array>
#include <compare>
#include <map>
#include <unordered_map>

#include "core/cpu/onednn.h"
#include "core/device.h"
#include "core/host_memory.h"

namespace tandem::cpu {

class Matmul {
 public:
  explicit Matmul(int threads);

  /// a, b both fp32 or both bf16; c fp32 or bf16. Arguments already checked for shape.
  void run(const Gemm& args);

 private:
  /// Everything a primitive depends on.
  struct Key {
    std::array<std::int64_t, 6> sizes_and_strides{};
    DType input{}, output{};
    bool transpose_a{}, transpose_b{}, bias{}, accumulate{};
    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    dnnl::matmul primitive;
    dnnl::memory a, b, c, bias, scratchpad;
    std::unordered_map<int, dnnl::memory> arguments;
    std::size_t scratchpad_bytes = 0;
  };

  Plan& plan(const Gemm& args);
  void multiply(const Gemm& args);
  void multiply_converted(const Gemm& args);

  int threads_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Key, Plan> plans_;
  HostScratch scratchpad_, blocks_;
};

}  // namespace tandem::cpu
