#include "parallel/local/local_world.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "parallel/local/local_communicator.h"

namespace tandem {

namespace {

constexpr auto kLook = std::chrono::milliseconds(100);
/// Between the look that finds something and the one that makes sure of it.
constexpr auto kSecondLook = std::chrono::milliseconds(10);
/// What ranks are given to leave by themselves once there is a report.
constexpr auto kLeave = std::chrono::milliseconds(700);

}  // namespace

LocalWorldState::LocalWorldState(int size, const WorldOptions& options) : options_(options) {
  for (int rank = 0; rank < size; ++rank) {
    recorders_.push_back(std::make_unique<FlightRecorder>(rank));
  }
  if (size > 1) {
    watch_ = std::thread([this] { watch(); });
  }
}

LocalWorldState::~LocalWorldState() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (watch_.joinable()) {
    watch_.join();
  }
}

std::shared_ptr<LocalGroup> LocalWorldState::group(const std::string& name,
                                                   const std::vector<int>& ranks, int instance) {
  const std::lock_guard lock(mutex_);
  auto& group = groups_[{name, ranks, instance}];
  if (group == nullptr) {
    group =
        std::make_shared<LocalGroup>(ranks, [this](const Alarm& alarm) { return raise(alarm); });
    if (!report_.empty()) {
      group->fail(report_);
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
  if (!report_.empty()) {
    throw PeerLost(report_);
  }
}

std::string LocalWorldState::raise(const Alarm& alarm) {
  const std::string report = report_of(alarm, views());
  const std::lock_guard lock(mutex_);
  fail(report, alarm.code);
  return report_;
}

void LocalWorldState::fail(const std::string& report, ExitCode code) {
  if (!report_.empty()) {
    return;
  }
  report_ = report;
  code_ = code;
  if (options_.report) {
    options_.report(report_);
  }
  for (auto& [key, group] : groups_) {
    group->fail(report_);
  }
  wake_.notify_all();
}

void LocalWorldState::depart(int rank) {
  recorder(rank).end();
  const std::lock_guard lock(mutex_);
  look_ = true;
  wake_.notify_all();
}

std::vector<RankView> LocalWorldState::views() const {
  std::vector<RankView> views;
  for (const auto& recorder : recorders_) {
    views.push_back({.status = recorder->status(), .known = true});
  }
  return views;
}

void LocalWorldState::watch() {
  std::optional<Finding> before;
  bool warned = false;
  std::unique_lock lock(mutex_);
  while (!stop_ && report_.empty()) {
    wake_.wait_for(lock, before ? kSecondLook : kLook,
                   [&] { return stop_ || look_ || !report_.empty(); });
    look_ = false;
    const Limits limits{.timeout_s = options_.timeout_s};
    lock.unlock();
    auto now = diagnose(views(), limits);
    lock.lock();
    if (now && now->kind == Finding::Kind::kSlow) {
      if (!warned && options_.warn) {
        options_.warn(now->report);
      }
      warned = true;
      now.reset();
    }
    if (now && before && now->kind == before->kind && now->fingerprint == before->fingerprint) {
      fail(now->report, ExitCode::kPeer);
    }
    before = std::move(now);
  }
  if (options_.ends_process && !wake_.wait_for(lock, kLeave, [&] { return stop_; })) {
    _exit(static_cast<int>(code_));
  }
}

std::unique_ptr<Communicator> LocalWorld::make_group(const std::string& name,
                                                     const std::vector<int>& ranks, Device& device,
                                                     Ledger* ledger, Profiler* profiler) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  ensure(place != ranks.end(), "a rank makes only groups that it is a member of");
  auto communicator = std::make_unique<LocalCommunicator>(
      name, ranks, static_cast<int>(place - ranks.begin()), device, ledger, profiler,
      state_->group(name, ranks, made_[{name, ranks}]++));
  communicator->record_in(recorder());
  return communicator;
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
        world.abandon(error.what(), ExitCode::kInternal);
      } catch (...) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
        world.abandon("an unknown exception", ExitCode::kInternal);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return thrown;
}

}  // namespace tandem
