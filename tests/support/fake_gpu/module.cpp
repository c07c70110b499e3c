// Stands for libtandem_cuda.so where there is no GPU: its device is the deferred one, whose memory
// the host cannot touch, and its NCCL world lends its name to the world below it. With it the real
// programs take the path that they take on a machine with GPUs.
#include <cstdio>
#include <utility>

#include "parallel/cuda_module.h"
#include "tests/support/deferred_device.h"

namespace tandem::testing {

namespace {

class FakeNcclWorld final : public World {
 public:
  explicit FakeNcclWorld(World& world) : world_(&world) {}
  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  std::string kind() const override { return "nccl"; }
  std::unique_ptr<Communicator> make_group(const std::string& name, const std::vector<int>& ranks,
                                           Device& device, Ledger* ledger,
                                           Profiler* profiler) override {
    return world_->make_group(name, ranks, device, ledger, profiler);
  }
  void set_timeout(double seconds) override { world_->set_timeout(seconds); }
  void check() override { world_->check(); }
  void abandon(const std::string& why) noexcept override { world_->abandon(why); }

 private:
  World* world_;
};

std::unique_ptr<Device> make_device(const CudaDeviceChoice& choice) {
  return make_deferred_device(1, 100 * static_cast<std::uint64_t>(choice.ordinal + 1));
}

std::unique_ptr<World> make_nccl_world(World& world, Communicator&, Device&, const WorldOptions&) {
  return std::make_unique<FakeNcclWorld>(world);
}

void start() { std::puts("capture starts"); }
void stop() { std::puts("capture ends"); }

constexpr CudaModule kModule = {.version = TANDEM_FAKE_VERSION,
                                .make_device = make_device,
                                .make_nccl_world = make_nccl_world,
                                .profiler_start = start,
                                .profiler_stop = stop};

}  // namespace

}  // namespace tandem::testing

extern "C" __attribute__((visibility("default"))) const tandem::CudaModule* tandem_cuda_module() {
  return &tandem::testing::kModule;
}
