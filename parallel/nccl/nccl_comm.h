// An ncclComm_t that is never waited for without end: it is non-blocking, every call is followed to
// its completion with a time-out, and one that failed is aborted instead of destroyed. Another
// thread than the one that calls may ask after it and abort it: NCCL wants one at a time, and so
// each call into NCCL has the communicator to itself.
//
// One kind of call may still be held, in the driver: a collective launches on the caller's thread,
// and where the stream's queue is full that lasts until the device goes on. Whoever looks from
// another thread must not wait for it.
#pragma once

#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "core/error.h"

namespace tandem::nccl {

/// What NCCL says of `result`.
std::string words(ncclResult_t result);

/// Called while the host waits, some thousand times a second: throws to give up.
using Watch = std::function<void()>;

class NcclComm {
 public:
  /// Collective over `size` ranks. `watch` outlives the communicator.
  NcclComm(const ncclUniqueId& id, int size, int rank, double timeout_s, const Watch& watch);
  /// Collective over `parent`: ranks of one colour, in the order of their keys. With
  /// NCCL_SPLIT_NOCOLOR this rank joins none.
  NcclComm(NcclComm& parent, int color, int key);
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;
  ~NcclComm();

  /// Calls `queue(comm)`, which returns NCCL's result, and follows it to where its kernels are
  /// queued. Throws InternalError with NCCL's words, PeerLost if a peer is the reason or does not
  /// come within the time-out, or if the communicator was aborted.
  template <typename Queue>
  void call(const char* name, Queue&& queue) {
    complete(locked(name, queue), name);
  }
  /// Throws as call() does if NCCL has found an error since. Leaves it to the call that is inside
  /// NCCL, if one is: that looks at its own result. From any thread; never held.
  void check();
  /// Ends what is under way, unfinished. Nothing can be called afterwards. From any thread; waits
  /// for the call that is inside NCCL, for at most `patience`: does nothing where that is too
  /// short.
  void abort(std::chrono::milliseconds patience) noexcept;
  /// The same, however long it takes.
  void abort() noexcept;

 private:
  template <typename Use>
  ncclResult_t locked(const char* name, Use&& use) {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) {
      throw PeerLost(std::string(name) + ": the communicator was aborted");
    }
    return use(comm_);
  }
  void abort_locked() noexcept;
  void complete(ncclResult_t result, const char* call);
  void wait_while_in_progress(const char* call);
  [[noreturn]] void fail(ncclResult_t result, const char* call);

  std::mutex mutex_;  ///< held inside every call of NCCL on comm_
  ncclComm_t comm_ = nullptr;
  double timeout_s_;
  const Watch* watch_;
};

}  // namespace tandem::nccl
