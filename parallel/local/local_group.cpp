#include "parallel/local/local_group.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;

// A wait spins where every rank has a processor, then offers its processor to others, then sleeps:
// a sleep and a wake-up cost 50 us on some machines.
constexpr auto kSpin = std::chrono::microseconds(10);
constexpr auto kYield = std::chrono::microseconds(100);

}  // namespace

LocalGroup::LocalGroup(std::vector<int> ranks, std::function<std::string(const Alarm&)> raise)
    : ranks_(std::move(ranks)),
      raise_(std::move(raise)),
      crowded_(ranks_.size() > std::thread::hardware_concurrency()) {}

Exchange& LocalGroup::open(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (failed_) {
    throw_failure();
  }
  const auto found = std::find_if(open_.begin(), open_.end(), [sequence](const auto& exchange) {
    return exchange->sequence == sequence;
  });
  if (found != open_.end()) {
    return **found;
  }
  if (free_.empty()) {
    free_.push_back(std::make_unique<Exchange>(ranks_.size()));
  }
  open_.push_back(std::move(free_.back()));
  free_.pop_back();
  Exchange& exchange = *open_.back();
  exchange.sequence = sequence;
  return exchange;
}

void LocalGroup::arrive(Exchange& exchange) {
  const int size = static_cast<int>(ranks_.size());
  {
    const std::lock_guard lock(mutex_);
    if (failed_) {
      throw_failure();
    }
    if (exchange.arrived.fetch_add(1) + 1 == size) {
      changed_.notify_all();
    }
  }
  // An exchange that is complete stays so, whatever fails afterwards; one that is incomplete when
  // its group fails stays incomplete, since arriving is refused from then on.
  wait([&] { return exchange.arrived == size || failed_; });
  if (exchange.arrived != size) {
    const std::lock_guard lock(mutex_);
    if (exchange.arrived != size) {
      throw_failure();
    }
  }
  check_agreement(exchange);
}

void LocalGroup::check_agreement(const Exchange& exchange) {
  const auto& postings = exchange.postings;
  if (std::all_of(postings.begin(), postings.end(),
                  [&](const Posting& posting) { return agree(postings[0].call, posting.call); })) {
    return;
  }
  std::vector<Announcement> calls;
  for (const Posting& posting : postings) {
    calls.push_back(posting.call);
  }
  const Disagreement found = disagreement(ranks_, calls);
  throw PeerLost(raise({found.text, found.sides}));
}

void LocalGroup::finish(Exchange& exchange, bool well) {
  if (!well) {
    exchange.faulty = true;
  }
  if (exchange.finished.fetch_add(1) + 1 == static_cast<int>(ranks_.size())) {
    const std::lock_guard lock(mutex_);
    if (sleepers_ > 0) {
      changed_.notify_all();
    }
  }
}

void LocalGroup::wait_finished(Exchange& exchange) {
  const int size = static_cast<int>(ranks_.size());
  wait([&] { return exchange.finished == size; });
}

void LocalGroup::check_well(const Exchange& exchange) {
  if (exchange.faulty) {
    const std::lock_guard lock(mutex_);
    throw_failure();
  }
}

void LocalGroup::release(Exchange& exchange) {
  const std::lock_guard lock(mutex_);
  if (++exchange.released < static_cast<int>(ranks_.size())) {
    return;
  }
  exchange.arrived = 0;
  exchange.finished = 0;
  exchange.faulty = false;
  exchange.released = 0;
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [&](const auto& open) { return open.get() == &exchange; });
  free_.push_back(std::move(*found));
  open_.erase(found);
}

void LocalGroup::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!failed_) {
    failure_ = why;
    failed_ = true;
    changed_.notify_all();
  }
}

void LocalGroup::throw_failure() { throw PeerLost(failure_); }

template <typename Done>
void LocalGroup::wait(Done&& done) {
  const auto start = Clock::now();
  for (auto waited = Clock::duration{}; waited < kYield; waited = Clock::now() - start) {
    if (done()) {
      return;
    }
    if (crowded_ || waited > kSpin) {
      sched_yield();
    }
  }
  std::unique_lock lock(mutex_);
  ++sleepers_;
  changed_.wait(lock, done);
  --sleepers_;
}

}  // namespace tandem
