// An ncclComm_t that is never waited for without end: it is non-blocking, every call is followed to
// its completion with a time-out, and one that failed is aborted instead of destroyed.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <string>

namespace tandem::nccl {

/// What NCCL says of `result`; `comm` may be null.
std::string words(ncclResult_t result, ncclComm_t comm);

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

  ncclComm_t get() const { return comm_; }
  /// Follows a call on this communicator to where its kernels are queued. Throws InternalError with
  /// NCCL's words, PeerLost if a peer is the reason or does not come within the time-out.
  void complete(ncclResult_t result, const char* call);
  /// Throws as complete() does if NCCL has found an error since.
  void check();
  /// Ends what is under way, unfinished. Nothing can be called afterwards.
  void abort() noexcept;

 private:
  void wait_while_in_progress(ncclComm_t comm, const char* call);
  [[noreturn]] void fail(ncclResult_t result, const char* call);

  ncclComm_t comm_ = nullptr;
  double timeout_s_;
  const Watch* watch_;
};

}  // namespace tandem::nccl
