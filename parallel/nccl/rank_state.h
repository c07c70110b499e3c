// What the groups of one rank have in common: the first failure of any, which the world is told of
// and which ends them all. The rank's thread asks after it, and so do those of stall_watch.h.
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <string>

#include "core/error.h"
#include "parallel/world.h"

namespace tandem::nccl {

class NcclCommunicator;

/// What the groups of one rank share: one that fails takes the others down with it. All but
/// set_timeout() may be called by the rank's thread and by the one that watches.
class RankState {
 public:
  /// `world` outlives this.
  RankState(World& world, double timeout_s) : world_(&world), timeout_s_(timeout_s) {}

  double timeout() const { return timeout_s_; }
  void set_timeout(double seconds) { timeout_s_ = seconds; }
  void add(NcclCommunicator& group);
  void remove(NcclCommunicator& group);

  /// Throws PeerLost or InternalError, and tells the world and aborts all groups, if one of them
  /// has failed or stalled, or a peer is known to have given up.
  void check();
  bool failed() const { return failed_; }
  /// Throws what went wrong before, if something did: PeerLost, or InternalError for this rank's
  /// own fault.
  void check_open() const;
  /// Tells the world why this rank cannot go on, unless it was told before, and aborts all groups.
  /// Returns what was told first.
  std::string fail(const std::string& why, ExitCode code);
  /// Aborts all groups and tells nobody: what is called from now on throws `why`.
  void abort(const std::string& why, ExitCode code) noexcept;
  /// World::raise, with all groups aborted.
  std::string raise(const Alarm& alarm);

  /// For the thread that watches, on the rank's GPU: check(), without an exception; false once it
  /// need not look again.
  bool look(int gpu);
  /// For the thread that watches that one: a look has taken `seconds`. Tells the world, and returns
  /// true, if a collective was under way. Nothing of CUDA or NCCL is called.
  bool held(double seconds);

 private:
  void tell(const std::string& why, ExitCode code);

  World* world_;
  double timeout_s_;
  std::mutex groups_mutex_;  ///< held while groups are looked at or aborted, so that none ends
  std::list<NcclCommunicator*> groups_;
  std::mutex failure_mutex_;
  std::string failure_;  ///< this and its code are written once, before failed_
  ExitCode failure_code_ = ExitCode::kPeer;
  std::atomic<bool> failed_ = false;
  std::mutex looked_at_mutex_;
  std::string looked_at_;  ///< by look(): the first collectives under way
};

}  // namespace tandem::nccl
