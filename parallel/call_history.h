// What a rank called in one group whose collectives run on a device: they are queued without a look
// at what the peers queue, so the ranks compare afterwards, through the host, before they use any
// result: a digest of all calls so far, and only if that differs, the calls.
#pragma once

#include <optional>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/report.h"

namespace tandem {

class CallHistory {
 public:
  void add(const Announcement& call);
  /// Collective over `host`, a group of the same ranks on host memory. What they called first that
  /// was not the same; nothing if all calls so far were.
  std::optional<Disagreement> compare(Communicator& host) const;

 private:
  Disagreement first_difference(Communicator& host) const;

  std::uint64_t calls_ = 0;
  Digest digest_;  ///< of all of them
  std::vector<Announcement> ring_;
};

}  // namespace tandem
