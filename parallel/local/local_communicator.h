// The communicator of ranks that are threads of one process. Each rank reads its peers' buffers
// where they lie and writes the results, through its device and on its group's stream: no tensor is
// touched by the host itself, nothing is copied that the definition does not copy.
#pragma once

#include <memory>

#include "parallel/communicator.h"
#include "parallel/local/local_group.h"

namespace tandem {

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::string name, std::vector<int> ranks, int index, Device& device,
                    Ledger* ledger, Profiler* profiler, std::shared_ptr<LocalGroup> group);

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

  /// Posts what `fill` puts into the posting, meets the peers, and queues `part(exchange)` behind
  /// everybody's ready events.
  template <typename Fill, typename Part>
  Work run(const CollectiveOptions& options, Fill&& fill, Part&& part);
  void check_counts(const Exchange& exchange);

  std::shared_ptr<LocalGroup> group_;
};

}  // namespace tandem
