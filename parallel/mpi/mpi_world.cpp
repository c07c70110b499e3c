#include <algorithm>
#include <memory>
#include <utility>

#include "parallel/mpi/mpi_communicator.h"
#include "parallel/mpi/mpi_transport.h"
#include "parallel/staged_communicator.h"
#include "parallel/world.h"

namespace tandem {

namespace {

class MpiWorld final : public World {
 public:
  explicit MpiWorld(const WorldOptions& options)
      : transport_(std::make_shared<MpiTransport>(options)) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::string kind() const override { return "mpi"; }

  std::unique_ptr<Communicator> make_group(const std::string& name, const std::vector<int>& ranks,
                                           Device& device, Ledger* ledger,
                                           Profiler* profiler) override {
    const auto place = std::find(ranks.begin(), ranks.end(), rank());
    ensure(place != ranks.end(), "a rank makes only groups that it is a member of");
    const int index = static_cast<int>(place - ranks.begin());
    if (device.host_memory()) {
      auto communicator = std::make_unique<MpiCommunicator>(name, ranks, index, device, ledger,
                                                            profiler, transport_, groups_++);
      communicator->record_in(recorder());
      return communicator;
    }
    auto host = make_cpu_device(1);
    auto inner = std::make_unique<MpiCommunicator>(name, ranks, index, *host, nullptr, nullptr,
                                                   transport_, groups_++);
    auto communicator = std::make_unique<StagedCommunicator>(std::move(host), std::move(inner),
                                                             device, ledger, profiler);
    communicator->record_in(recorder());
    return communicator;
  }

  void set_timeout(double seconds) override { transport_->set_timeout(seconds); }
  void check() override { transport_->check_world(); }
  std::string raise(const Alarm& alarm) override { return transport_->raise(alarm); }
  FlightRecorder& recorder() override { return transport_->recorder(); }

 private:
  std::shared_ptr<MpiTransport> transport_;
  int groups_ = 0;
};

}  // namespace

std::unique_ptr<World> make_mpi_world(const WorldOptions& options) {
  return std::make_unique<MpiWorld>(options);
}

}  // namespace tandem
