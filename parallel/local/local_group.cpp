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
/// Thirty years: a time-out beyond it may not fit the clock, and would then be in the past.
constexpr double kLongestTimeout = 1e9;

}  // namespace

LocalGroup::LocalGroup(std::vector<int> ranks, double timeout_s)
    : ranks_(std::move(ranks)),
      timeout_s_(std::min(timeout_s, kLongestTimeout)),
      crowded_(ranks_.size() > std::thread::hardware_concurrency()),
      departed_(ranks_.size()) {}

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

void LocalGroup::arrive(int index, Exchange& exchange) {
  const int size = static_cast<int>(ranks_.size());
  const auto start = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    if (failed_) {
      throw_failure();
    }
    exchange.present[static_cast<std::size_t>(index)] = 1;
    if (exchange.arrived.fetch_add(1) + 1 == size) {
      changed_.notify_all();
    } else if (check_departed(exchange)) {
      throw_failure();
    }
  }
  const auto deadline = start + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(timeout_s_));
  // An exchange that is complete stays so, whatever fails afterwards; one that is incomplete when
  // its group fails stays incomplete, since arriving is refused from then on.
  wait([&] { return exchange.arrived == size || failed_; }, &deadline);
  if (exchange.arrived != size) {
    const std::lock_guard lock(mutex_);
    if (exchange.arrived != size) {
      if (!failed_) {
        std::vector<int> missing;
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
          if (exchange.present[r] == 0) {
            missing.push_back(ranks_[r]);
          }
        }
        const std::chrono::duration<double> waited = Clock::now() - start;
        fail_locked(time_out(exchange.postings[static_cast<std::size_t>(index)].call.entry, ranks_,
                             missing, waited.count()));
      }
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
  const std::string text = disagreement(ranks_, calls);
  fail(text);
  throw PeerLost(text);
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
  wait([&] { return exchange.finished == size; }, nullptr);
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
  std::fill(exchange.present.begin(), exchange.present.end(), 0);
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [&](const auto& open) { return open.get() == &exchange; });
  free_.push_back(std::move(*found));
  open_.erase(found);
}

void LocalGroup::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  fail_locked(why);
}

void LocalGroup::fail_locked(const std::string& why) {
  if (!failed_) {
    failure_ = why;
    failed_ = true;
    changed_.notify_all();
  }
}

void LocalGroup::depart(int rank) {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  if (found == ranks_.end()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  departed_[static_cast<std::size_t>(found - ranks_.begin())] = 1;
  for (const auto& exchange : open_) {
    check_departed(*exchange);
  }
}

bool LocalGroup::check_departed(const Exchange& exchange) {
  if (exchange.arrived == 0) {
    return false;
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (departed_[r] != 0 && exchange.present[r] == 0) {
      const auto waiting = std::find(exchange.present.begin(), exchange.present.end(), 1);
      const auto& call =
          exchange.postings[static_cast<std::size_t>(waiting - exchange.present.begin())].call;
      fail_locked("rank " + std::to_string(ranks_[r]) + " ended without " + call.entry.to_string() +
                  " in group " + std::string(call.entry.group.view()) + " " + to_string(ranks_));
      return true;
    }
  }
  return false;
}

void LocalGroup::throw_failure() { throw PeerLost(failure_); }

template <typename Done>
bool LocalGroup::wait(Done&& done, const Clock::time_point* deadline) {
  const auto start = Clock::now();
  for (auto waited = Clock::duration{}; waited < kYield; waited = Clock::now() - start) {
    if (done()) {
      return true;
    }
    if (crowded_ || waited > kSpin) {
      sched_yield();
    }
  }
  std::unique_lock lock(mutex_);
  ++sleepers_;
  bool held = true;
  if (deadline == nullptr) {
    changed_.wait(lock, done);
  } else {
    held = changed_.wait_until(lock, *deadline, done);
  }
  --sleepers_;
  return held;
}

}  // namespace tandem
