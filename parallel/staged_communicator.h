// Collectives on tensors that the host cannot touch, by ranks that talk through host memory: every
// tensor goes down to a staging buffer, through a communicator of host tensors, and up again. For
// correctness, not for speed: several ranks on one GPU, or GPUs without NCCL.
#pragma once

#include <memory>

#include "parallel/communicator.h"

namespace tandem {

/// Staging memory of a device, which grows to the largest tensor and stays.
class StagingBuffer {
 public:
  explicit StagingBuffer(Device& device) : device_(&device) {}
  ~StagingBuffer() { device_->deallocate_staging(memory_); }
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  /// A flat tensor of `like`'s type and size with unspecified values. What was staged before must
  /// be done with.
  Tensor reserve(const Tensor& like);

 private:
  Device* device_;
  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

class StagedCommunicator final : public Communicator {
 public:
  /// `inner` (of the same ranks) works on `host`'s memory, which the host may touch. `device` is
  /// where this communicator's tensors live.
  StagedCommunicator(std::unique_ptr<Device> host, std::unique_ptr<Communicator> inner,
                     Device& device, Ledger* ledger, Profiler* profiler);
  /// A copy that nobody waited for still reads the staging buffers.
  ~StagedCommunicator() override;

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

  /// The values of `tensor` once `options.after` is there; blocks the host.
  Tensor down(const Tensor& tensor, const CollectiveOptions& options);
  Work up(const Tensor& host, const Tensor& tensor);
  /// Blocks the host until what came before, staging included, is done.
  void settle(const CollectiveOptions& options);

  std::unique_ptr<Device> host_;
  std::unique_ptr<Communicator> inner_;
  std::unique_ptr<Event> ready_;
  StagingBuffer sent_, received_;
};

}  // namespace tandem
