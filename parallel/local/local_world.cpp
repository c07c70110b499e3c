#include "parallel/local/local_world.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "parallel/local/local_communicator.h"

namespace tandem {

std::shared_ptr<LocalGroup> LocalWorldState::group(const std::string& name,
                                                   const std::vector<int>& ranks, int instance) {
  const std::lock_guard lock(mutex_);
  auto& group = groups_[{name, ranks, instance}];
  if (group == nullptr) {
    group = std::make_shared<LocalGroup>(ranks, options_.timeout_s);
    for (const int rank : departed_) {
      group->depart(rank);
    }
    if (!failure_.empty()) {
      group->fail(failure_);
    }
  }
  return group;
}

void LocalWorldState::set_timeout(double seconds) {
  const std::lock_guard lock(mutex_);
  options_.timeout_s = seconds;
}

void LocalWorldState::check() {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) {
    throw PeerLost(failure_);
  }
}

void LocalWorldState::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = why;
    for (auto& [key, group] : groups_) {
      group->fail(failure_);
    }
  }
}

void LocalWorldState::depart(int rank) {
  const std::lock_guard lock(mutex_);
  departed_.push_back(rank);
  for (auto& [key, group] : groups_) {
    group->depart(rank);
  }
}

std::unique_ptr<Communicator> LocalWorld::make_group(const std::string& name,
                                                     const std::vector<int>& ranks, Device& device,
                                                     Ledger* ledger, Profiler* profiler) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  ensure(place != ranks.end(), "a rank makes only groups that it is a member of");
  return std::make_unique<LocalCommunicator>(name, ranks, static_cast<int>(place - ranks.begin()),
                                             device, ledger, profiler,
                                             state_->group(name, ranks, made_[{name, ranks}]++));
}

void LocalWorld::abandon(const std::string& why) noexcept {
  try {
    state_->fail("rank " + std::to_string(rank_) + " gave up: " + why);
  } catch (...) {  // no memory for the text: the peers find out by time-out
  }
}

std::vector<std::exception_ptr> run_local_world(int ranks, const WorldOptions& options,
                                                const std::function<void(World&)>& body) {
  ensure(ranks >= 1, "a world has at least one rank");
  const auto state = std::make_shared<LocalWorldState>(ranks, options);
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      LocalWorld world(rank, state);
      try {
        body(world);
        state->depart(rank);
      } catch (const std::exception& error) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
        world.abandon(error.what());
      } catch (...) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
        world.abandon("an unknown exception");
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return thrown;
}

}  // namespace tandem
