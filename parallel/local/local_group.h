// Where the ranks (threads) of one group meet. A collective is an Exchange: each rank posts its
// tensors and an event that says when they are ready; once all have posted, each queues its part on
// its own stream and posts a second event that says when that part is done. Nobody touches
// another's memory before all have posted or after all parts are done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/report.h"

namespace tandem {

/// What one rank brings to an exchange.
struct Posting {
  Announcement call;
  Tensor input, output;
  std::vector<std::int64_t> send_rows, receive_rows;  ///< all_to_all only
  bool has_ready = false;                             ///< `ready` was recorded for this exchange
  // Each made by its rank's device and kept for the next exchange that uses this slot.
  std::unique_ptr<Event> ready, done;
};

/// One collective of a group. Kept until every rank has let go of it, then used again: a rank may
/// run ahead by any number of collectives.
struct Exchange {
  explicit Exchange(std::size_t size) : postings(size) {}

  std::uint64_t sequence = 0;
  std::vector<Posting> postings;  ///< by group index
  std::atomic<int> arrived{0};
  std::atomic<int> finished{0};
  std::atomic<bool> faulty{false};  ///< a rank could not do its part
  // Under the group's mutex.
  int released = 0;
};

class LocalGroup {
 public:
  /// `raise` ends the world for all its groups (World::abandon), and returns the report.
  LocalGroup(std::vector<int> ranks, std::function<std::string(const Alarm&)> raise);

  /// The exchange `sequence`, for a rank to fill in its posting.
  Exchange& open(std::uint64_t sequence);
  /// Blocks the host until all ranks have posted. Throws PeerLost if they disagree, or if the world
  /// fails first; then nobody ever will find this exchange complete.
  void arrive(Exchange& exchange);
  /// This rank's part is queued and its done event recorded; `well` false: it could not be.
  void finish(Exchange& exchange, bool well);
  /// Blocks the host until every rank has queued its part, or failed to.
  void wait_finished(Exchange& exchange);
  /// Throws PeerLost if a rank could not queue its part.
  void check_well(const Exchange& exchange);
  void release(Exchange& exchange);

  /// Every rank that waits in this group for an incomplete exchange, now or later, gets PeerLost
  /// with the first text given.
  void fail(const std::string& why);
  /// This rank found that the world cannot go on; returns the report.
  std::string raise(const Alarm& alarm) { return raise_(alarm); }

 private:
  /// Every rank finds the same disagreement, since all postings are there.
  void check_agreement(const Exchange& exchange);
  [[noreturn]] void throw_failure();
  /// Spins for a moment, then sleeps until `done` holds.
  template <typename Done>
  void wait(Done&& done);

  const std::vector<int> ranks_;
  const std::function<std::string(const Alarm&)> raise_;
  const bool crowded_;  ///< more ranks than processors
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  int sleepers_ = 0;
  std::string failure_;
  std::vector<std::unique_ptr<Exchange>> open_, free_;
};

}  // namespace tandem
