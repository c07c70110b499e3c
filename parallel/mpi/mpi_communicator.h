// The communicator of ranks that are processes; tensors in host memory. A collective opens with one
// message between every two ranks: an announcement of what is called, so that ranks that disagree
// find out before anything is summed, with the data itself where that is short. Longer data follows
// in pieces. Reductions are all-to-all, sum in rank order, all-gather: the bytes of a ring, and
// bits that do not depend on the size of pieces. Everything runs in the calling thread: by the time
// a call returns the collective is done.
#pragma once

#include <memory>
#include <vector>

#include "core/host_memory.h"
#include "parallel/communicator.h"
#include "parallel/mpi/mpi_transport.h"

namespace tandem {

class MpiCommunicator final : public Communicator {
 public:
  /// `number`: of this group, the same on all its ranks, distinct among groups that share ranks.
  MpiCommunicator(std::string name, std::vector<int> ranks, int index, Device& device,
                  Ledger* ledger, Profiler* profiler, std::shared_ptr<MpiTransport> transport,
                  int number);

 private:
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

  /// One tensor per group rank; absent where nothing goes.
  using Tensors = std::vector<Tensor>;

  /// Waits for `options.after`, exchanges announcements, with outgoing tensors that are short
  /// inside, and checks that the ranks agree.
  void open(const CollectiveOptions& options, const Tensors& outgoing);
  Announcement announced_by(int peer) const;
  /// What came from `peer` inside its announcement, flat, of `like`'s type and size.
  Tensor received(int peer, const Tensor& like) const;
  /// Sends and receives the tensors that were too long for the announcement, in pieces of which two
  /// are on their way; copies those that were not.
  void transfer(const Tensors& outgoing, const Tensors& incoming);
  /// region(k, r): what rank r sums of piece k, a part of this rank's data; result(k): where this
  /// rank's sum of piece k goes. `gather`: the sums of all then replace the regions. The messages
  /// of a piece pass while the piece before it is summed and gathered.
  template <typename Region, typename Result>
  void reduce_in_pieces(std::int64_t pieces, ReduceOp op, bool gather, Region&& region,
                        Result&& result);
  /// all_to_all: what the peers send is what this rank expects.
  void check_counts() const;
  void wait(MpiBatch& batch) { transport_->wait(batch); }
  void reduce(const Tensors& inputs, const Tensor& output, ReduceOp op);
  int world_rank(int group_rank) const { return ranks()[static_cast<std::size_t>(group_rank)]; }

  std::shared_ptr<MpiTransport> transport_;
  int tag_;
  MpiBatch batch_, in_flight_[2], gather_;
  Tensors outgoing_, incoming_;
  HostScratch sent_, received_, pieces_;
  std::byte* inbox_ = nullptr;  ///< received_'s memory: one slot per rank
};

}  // namespace tandem
