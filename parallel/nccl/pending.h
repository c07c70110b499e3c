// The collectives of one group that its device has not finished, in the order in which they were
// issued, and which of them has run for too long. On a GPU the host is far ahead: the time that
// counts runs from when the device itself comes to the collective.
#pragma once

#include <chrono>
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
  void clear() { calls_.clear(); }
  /// nullptr for none.
  const LedgerEntry* oldest() const { return calls_.empty() ? nullptr : &calls_.front().call; }

  struct Stalled {
    LedgerEntry call;
    double seconds = 0.0;
  };
  /// Forgets what is done, after `finished(line, started, done)`. Of what is not, the oldest (the
  /// device takes them in order) if it has been seen running for longer than the time-out.
  template <typename Finished>
  std::optional<Stalled> look(Clock::time_point now, Finished&& finished) {
    while (!calls_.empty() && calls_.front().done.reached()) {
      const Call& call = calls_.front();
      finished(call.line, call.started, call.done);
      calls_.pop_front();
    }
    if (calls_.empty() || !calls_.front().started.reached()) {
      return std::nullopt;
    }
    Call& oldest = calls_.front();
    if (!oldest.seen_running) {
      oldest.seen_running = now;
    }
    const std::chrono::duration<double> running = now - *oldest.seen_running;
    if (running.count() <= timeout_) {
      return std::nullopt;
    }
    return Stalled{oldest.call, running.count()};
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
};

}  // namespace tandem::nccl
