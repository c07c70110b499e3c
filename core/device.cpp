#include "core/device.h"

#include "core/host_memory.h"

namespace tandem {

void* Device::allocate_staging(std::size_t bytes) { return allocate_host(bytes); }

void Device::deallocate_staging(void* memory) noexcept { free_host(memory); }

bool Device::gemm_activation(Stream& stream, const GemmActivation& args) {
  gemm(stream, args.gemm);
  return false;
}

bool Device::gemm_activation_backward(Stream& stream, const GemmActivationBackward& args) {
  gemm(stream, args.gemm);
  return false;
}

void Device::gemm_bias_gradient(Stream& stream, const GemmBiasGradient& args) {
  gemm(stream, args.gemm);
  column_sum(stream, {.x = args.gemm.a, .out = args.d_bias, .write = args.gemm.write});
}

}  // namespace tandem
