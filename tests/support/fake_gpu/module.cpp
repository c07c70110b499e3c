// Stands for libtandem_cuda.so where there is no GPU: its device is the deferred one, whose memory
// the host cannot touch, and its collectives are those of parallel/nccl over a stand-in for NCCL,
// for ranks that are threads. With it the real programs take the path that they take on a machine
// with GPUs.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "parallel/cuda_module.h"
#include "parallel/nccl/nccl_world.h"
#include "tests/support/deferred_device.h"

namespace tandem::testing {

namespace {

std::unique_ptr<Device> make_device(const CudaDeviceChoice& choice) {
  const char* fails = std::getenv("FAKE_GPU_FAILS");
  if (fails != nullptr && std::atoi(fails) == choice.ordinal) {
    throw InternalError("the driver is too old");
  }
  return make_deferred_device(1, 100 * static_cast<std::uint64_t>(choice.ordinal + 1));
}

/// Says `what`, and whether a rank of this process was in a step meanwhile.
void say(const char* what) {
  const std::uint64_t before = begun_kernels();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::printf("capture %s%s\n", what, begun_kernels() == before ? "" : " within a step");
  std::fflush(stdout);
}
void start() { say("starts"); }
void stop() { say("ends"); }

constexpr CudaModule kModule = {.version = TANDEM_FAKE_VERSION,
                                .make_device = make_device,
                                .make_nccl_world = nccl::make_nccl_world,
                                .profiler_start = start,
                                .profiler_stop = stop};

}  // namespace

}  // namespace tandem::testing

extern "C" __attribute__((visibility("default"))) const tandem::CudaModule* tandem_cuda_module() {
  return &tandem::testing::kModule;
}
