// The world whose ranks are threads of this process: what they share, and each rank's handle on it.
// A thread of its own watches the ranks: they share memory, so it simply looks.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "parallel/diagnosis.h"
#include "parallel/local/local_group.h"
#include "parallel/world.h"

namespace tandem {

/// Shared by all ranks; outlives every handle and communicator.
class LocalWorldState {
 public:
  LocalWorldState(int size, const WorldOptions& options);
  ~LocalWorldState();
  LocalWorldState(const LocalWorldState&) = delete;
  LocalWorldState& operator=(const LocalWorldState&) = delete;

  int size() const { return static_cast<int>(recorders_.size()); }
  FlightRecorder& recorder(int rank) { return *recorders_[static_cast<std::size_t>(rank)]; }
  /// The `instance`-th group of this name and these ranks: the same object for all its ranks.
  std::shared_ptr<LocalGroup> group(const std::string& name, const std::vector<int>& ranks,
                                    int instance);
  void set_timeout(double seconds);
  /// Throws PeerLost if a rank has failed.
  void check();
  /// Reports the first alarm of all and wakes every rank; returns that report.
  std::string raise(const Alarm& alarm);
  /// `rank` makes no more calls.
  void depart(int rank);

 private:
  using Key = std::tuple<std::string, std::vector<int>, int>;

  std::vector<RankView> views() const;
  void watch();
  /// With the lock held: `report` is the first, or nothing happens.
  void fail(const std::string& report, ExitCode code);

  WorldOptions options_;
  std::vector<std::unique_ptr<FlightRecorder>> recorders_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<LocalGroup>> groups_;
  std::string report_;
  ExitCode code_ = ExitCode::kPeer;
  bool stop_ = false;
  bool look_ = false;  ///< there is something to see
  std::condition_variable wake_;
  std::thread watch_;
};

class LocalWorld final : public World {
 public:
  LocalWorld(int rank, std::shared_ptr<LocalWorldState> state)
      : rank_(rank), state_(std::move(state)) {}

  int rank() const override { return rank_; }
  int size() const override { return state_->size(); }
  std::string kind() const override { return "local"; }
  std::unique_ptr<Communicator> make_group(const std::string& name, const std::vector<int>& ranks,
                                           Device& device, Ledger* ledger,
                                           Profiler* profiler) override;
  void set_timeout(double seconds) override { state_->set_timeout(seconds); }
  void check() override { state_->check(); }
  std::string raise(const Alarm& alarm) override { return state_->raise(alarm); }
  FlightRecorder& recorder() override { return state_->recorder(rank_); }

 private:
  const int rank_;
  std::shared_ptr<LocalWorldState> state_;
  std::map<std::pair<std::string, std::vector<int>>, int> made_;
};

}  // namespace tandem
