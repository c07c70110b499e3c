// The world whose ranks are threads of this process: what they share, and each rank's handle on it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/local/local_group.h"
#include "parallel/world.h"

namespace tandem {

/// Shared by all ranks; outlives every handle and communicator.
class LocalWorldState {
 public:
  LocalWorldState(int size, const WorldOptions& options) : size_(size), options_(options) {}

  int size() const { return size_; }
  /// The `instance`-th group of this name and these ranks: the same object for all its ranks.
  std::shared_ptr<LocalGroup> group(const std::string& name, const std::vector<int>& ranks,
                                    int instance);
  void set_timeout(double seconds);
  /// Throws PeerLost if a rank has failed.
  void check();
  /// The first failure is the one that is told.
  void fail(const std::string& why);
  void depart(int rank);

 private:
  using Key = std::tuple<std::string, std::vector<int>, int>;

  const int size_;
  WorldOptions options_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<LocalGroup>> groups_;
  std::string failure_;
  std::vector<int> departed_;
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
  void abandon(const std::string& why) noexcept override;

 private:
  const int rank_;
  std::shared_ptr<LocalWorldState> state_;
  std::map<std::pair<std::string, std::vector<int>>, int> made_;
};

}  // namespace tandem
