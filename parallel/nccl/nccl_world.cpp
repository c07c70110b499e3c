#include "parallel/nccl/nccl_world.h"

#include <algorithm>
#include <utility>

#include "core/cuda/error.h"
#include "parallel/nccl/nccl_communicator.h"
#include "parallel/nccl/stall_watch.h"

namespace tandem::nccl {

namespace {

ncclUniqueId agree_on_id(Communicator& control) {
  ncclUniqueId id{};
  if (control.index() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw InternalError("ncclGetUniqueId: NCCL says: " + words(result));
    }
  }
  control
      .broadcast(Tensor(id.internal, DType::kU8, {NCCL_UNIQUE_ID_BYTES}), 0, {.label = "NCCL's id"})
      .wait_host();
  return id;
}

int current_gpu() {
  int ordinal = 0;
  cuda::check_status(cudaGetDevice(&ordinal), "cudaGetDevice");
  return ordinal;
}

class NcclWorld final : public World {
 public:
  NcclWorld(World& world, Communicator& control, const WorldOptions& options)
      : world_(&world),
        state_(std::make_shared<RankState>(world, options.timeout_s)),
        watch_([this] { world_->check(); }),
        comm_(agree_on_id(control), world.size(), world.rank(), options.timeout_s, watch_),
        stall_watch_(
            options.timeout_s,
            [state = state_.get(), gpu = current_gpu()] { return state->look(gpu); },
            [state = state_.get()](double seconds) { return state->held(seconds); }) {}
  ~NcclWorld() override {
    if (state_->failed()) {
      comm_.abort();  // its end would wait for peers
    }
  }
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  std::string kind() const override { return "nccl"; }

  std::unique_ptr<Communicator> make_group(const std::string& name, const std::vector<int>& ranks,
                                           Device& device, Ledger* ledger,
                                           Profiler* profiler) override {
    if (device.host_memory()) {
      return world_->make_group(name, ranks, device, ledger, profiler);
    }
    const auto place = std::find(ranks.begin(), ranks.end(), rank());
    ensure(place != ranks.end(), "a rank makes only groups that it is a member of");
    const int index = static_cast<int>(place - ranks.begin());
    const Split split = split_of(ranks, index);
    auto comm = std::make_unique<NcclComm>(comm_, split.color, split.key);
    if (split.color == kNoColor) {
      comm.reset();
    }
    auto host = ranks.size() == 1
                    ? nullptr
                    : world_->make_group(name + " on the host", ranks, *host_, nullptr, nullptr);
    auto communicator = std::make_unique<NcclCommunicator>(
        name, ranks, index, device, ledger, profiler, std::move(comm), state_, std::move(host));
    communicator->record_in(recorder());
    return communicator;
  }

  void set_timeout(double seconds) override {
    world_->set_timeout(seconds);
    state_->set_timeout(seconds);
  }
  void check() override { state_->check(); }
  std::string raise(const Alarm& alarm) override { return state_->raise(alarm); }
  FlightRecorder& recorder() override { return world_->recorder(); }

 private:
  World* world_;
  std::unique_ptr<Device> host_ = make_reference_device(1);
  std::shared_ptr<RankState> state_;
  Watch watch_;
  NcclComm comm_;
  StallWatch stall_watch_;
};

}  // namespace

std::unique_ptr<World> make_nccl_world(World& world, Communicator& control, Device&,
                                       const WorldOptions& options) {
  return std::make_unique<NcclWorld>(world, control, options);
}

}  // namespace tandem::nccl
