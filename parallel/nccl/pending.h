// The collectives of one group that its device has not finished, in the order in which they were
// issued, and which of them has run for too long. On a GPU the host is far ahead: the time that
// counts runs from when the device itself comes to the collective.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "parallel/ledger.h"

namespace tandem::nccl {

/// `Mark`: a place in a stream, with `bool reached() const`.
template <typename Mark>
class Pending {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Pending(double timeout_s) : timeout_(timeout_s) {}

  /// `line`: the call's place in the ledger.
  void push(const LedgerEntry& call, Ledger::LineNumber line, Mark started, Mark done) {
    calls_.push_back({call, line, std::move(started), std::move(done), std::nullopt});
  }
  bool empty() const { return calls_.empty(); }
  /// Of what was not done at the last look; nullptr for none.
  const LedgerEntry* oldest() const {
    return done_ == calls_.size() ? nullptr : &calls_[done_].call;
  }

  struct Stalled {
    LedgerEntry call;
    double seconds = 0.0;
  };
  /// Of what is not done, the oldest (the device takes them in order) if it has been seen running
  /// for longer than the time-out.
  std::optional<Stalled> look(Clock::time_point now) {
    while (done_ < calls_.size() && calls_[done_].done.reached()) {
      ++done_;
    }
    if (done_ == calls_.size() || !calls_[done_].started.reached()) {
      return std::nullopt;
    }
    Call& oldest = calls_[done_];
    if (!oldest.seen_running) {
      oldest.seen_running = now;
    }
    const std::chrono::duration<double> running = now - *oldest.seen_running;
    if (running.count() <= timeout_) {
      return std::nullopt;
    }
    return Stalled{oldest.call, running.count()};
  }
  /// Forgets what look() found done, after `finished(line, started, done)` of each.
  template <typename Finished>
  void forget_done(Finished&& finished) {
    for (; done_ > 0; --done_) {
      const Call& call = calls_.front();
      finished(call.line, call.started, call.done);
      calls_.pop_front();
    }
  }

 private:
  struct Call {
    LedgerEntry call;
    Ledger::LineNumber line;
    Mark started, done;
    std::optional<Clock::time_point> seen_running;
  };

  double timeout_;
  std::deque<Call> calls_;
  std::size_t done_ = 0;  ///< of calls_, from the front
};

}  // namespace tandem::nccl
