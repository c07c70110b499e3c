// The communicator of ranks that have a GPU each. A collective is queued on the group's own stream,
// which has priority over the computing one: the call returns at once, and a wait makes a stream
// wait, not the host. The host looks for errors and stalls in wait_host() and settle(), and a
// thread does all the time (stall_watch.h), since the host may be held elsewhere; then everything
// under way is aborted, so that no kernel is left that waits for a peer that will never come.
//
// Sums are NCCL's: in the type of the tensor, each hop rounded, in an order of NCCL's choice; the
// same bits on every rank. No averages and no scaled sums: scaling is done elsewhere.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/call_history.h"
#include "parallel/communicator.h"
#include "parallel/nccl/marks.h"
#include "parallel/nccl/nccl_arguments.h"
#include "parallel/nccl/nccl_comm.h"
#include "parallel/nccl/pending.h"
#include "parallel/nccl/rank_state.h"

namespace tandem::nccl {

class NcclCommunicator final : public Communicator {
 public:
  /// `comm` is empty for a group of one, and so is `host`: the same ranks on host memory.
  NcclCommunicator(std::string name, std::vector<int> ranks, int index, Device& device,
                   Ledger* ledger, Profiler* profiler, std::unique_ptr<NcclComm> comm,
                   std::shared_ptr<RankState> state, std::unique_ptr<Communicator> host);
  /// What is under way ends first, or is aborted.
  ~NcclCommunicator() override;

  void compare_calls() override;
  void settle() override;
  void cancel(const std::string& why, ExitCode code) noexcept override;

  // For RankState, on any thread.
  /// Throws if NCCL has found an error, or a collective has stalled.
  void look();
  /// Of the collective that was under way at the last look; empty for none.
  std::string under_way();
  /// As NcclComm's.
  void abort(std::chrono::milliseconds patience) noexcept;
  void abort() noexcept;

 private:
  class NcclWork;

  bool holds_host() const override { return false; }
  Work do_all_reduce(const Tensor& tensor, const CollectiveOptions& options) override;
  Work do_all_gather(const Tensor& input, const Tensor& output,
                     const CollectiveOptions& options) override;
  Work do_reduce_scatter(const Tensor& input, const Tensor& output,
                         const CollectiveOptions& options) override;
  Work do_all_to_all(const Tensor& input, std::span<const std::int64_t> send_rows,
                     const Tensor& output, std::span<const std::int64_t> receive_rows,
                     const CollectiveOptions& options) override;
  Work do_broadcast(const Tensor& tensor, int root, const CollectiveOptions& options) override;
  Work do_barrier(const CollectiveOptions& options) override;

  /// Queues `queue(comm, stream)`, which returns NCCL's result, behind `options.after`.
  template <typename Queue>
  Work issue(const CollectiveOptions& options, const char* name, Queue&& queue);
  /// Tells the ledger of the collectives that were found done. Whether any is left.
  bool collect();
  /// Blocks the host, looking out for failures, until `mark` is reached.
  void wait_for(const StreamMark& mark);

  std::unique_ptr<NcclComm> comm_;
  std::shared_ptr<RankState> state_;
  std::unique_ptr<Communicator> host_;
  CallHistory history_;
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
  std::mutex pending_mutex_;
  Pending<StreamMark> pending_;
  /// Before and behind each wait of a stream: between them the device computed nothing.
  struct Wait {
    Ledger::LineNumber line;
    StreamMark before, behind;
  };
  std::vector<Wait> waits_;
  std::byte* barrier_ = nullptr;  ///< 4 bytes on the device, once a barrier is called
};

}  // namespace tandem::nccl
