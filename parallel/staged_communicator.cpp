#include "parallel/staged_communicator.h"

#include <algorithm>
#include <utility>

namespace tandem {

namespace {

CollectiveOptions on_host(const CollectiveOptions& options) {
  return {.op = options.op, .label = options.label};
}

/// The rows of `tensor` in its flat staging buffer.
Tensor shaped(const Tensor& host, const Tensor& tensor) { return host.reshape(tensor.shape); }

}  // namespace

Tensor StagingBuffer::reserve(const Tensor& like) {
  if (like.bytes() > size_) {
    device_->deallocate_staging(memory_);
    memory_ = nullptr;
    size_ = 0;
    memory_ = device_->allocate_staging(like.bytes());
    size_ = like.bytes();
  }
  return {memory_, like.dtype, {like.numel()}};
}

StagedCommunicator::StagedCommunicator(std::unique_ptr<Device> host,
                                       std::unique_ptr<Communicator> inner, Device& device,
                                       Ledger* ledger, Profiler* profiler)
    : Communicator(inner->name(), inner->ranks(), inner->index(), device, ledger, profiler),
      host_(std::move(host)),
      inner_(std::move(inner)),
      ready_(device.make_event()),
      sent_(device),
      received_(device) {}

StagedCommunicator::~StagedCommunicator() {
  try {
    stream().synchronize();
  } catch (...) {  // told to whoever waited
  }
}

void StagedCommunicator::settle(const CollectiveOptions& options) {
  if (options.after != nullptr) {
    options.after->record(*ready_);
    stream().wait(*ready_);
  }
  stream().synchronize();
}

Tensor StagedCommunicator::down(const Tensor& tensor, const CollectiveOptions& options) {
  settle(options);
  const Tensor host = sent_.reserve(tensor);
  if (tensor.numel() > 0) {
    device().copy(stream(), tensor.flat(), host);
    stream().synchronize();
  }
  return host;
}

Work StagedCommunicator::up(const Tensor& host, const Tensor& tensor) {
  if (tensor.numel() == 0) {
    return {};
  }
  device().copy(stream(), host, tensor.flat());
  return work_after(device(), stream());
}

Work StagedCommunicator::do_all_reduce(const Tensor& tensor, const CollectiveOptions& options) {
  const Tensor host = down(tensor, options);
  inner_->all_reduce(host, on_host(options)).wait_host();
  return up(host, tensor);
}

Work StagedCommunicator::do_all_gather(const Tensor& input, const Tensor& output,
                                       const CollectiveOptions& options) {
  const Tensor own = down(input, options);
  const Tensor all = received_.reserve(output);
  inner_->all_gather(own, all, on_host(options)).wait_host();
  return up(all, output);
}

Work StagedCommunicator::do_reduce_scatter(const Tensor& input, const Tensor& output,
                                           const CollectiveOptions& options) {
  const Tensor all = down(input, options);
  const Tensor own = received_.reserve(output);
  inner_->reduce_scatter(all, own, on_host(options)).wait_host();
  return up(own, output);
}

Work StagedCommunicator::do_all_to_all(const Tensor& input, std::span<const std::int64_t> send_rows,
                                       const Tensor& output,
                                       std::span<const std::int64_t> receive_rows,
                                       const CollectiveOptions& options) {
  const Tensor sent = down(input, options);
  const Tensor received = received_.reserve(output);
  inner_
      ->all_to_all(shaped(sent, input), send_rows, shaped(received, output), receive_rows,
                   on_host(options))
      .wait_host();
  return up(received, output);
}

Work StagedCommunicator::do_broadcast(const Tensor& tensor, int root,
                                      const CollectiveOptions& options) {
  if (index() == root) {
    inner_->broadcast(down(tensor, options), root, on_host(options)).wait_host();
    return {};
  }
  settle(options);
  const Tensor host = received_.reserve(tensor);
  inner_->broadcast(host, root, on_host(options)).wait_host();
  return up(host, tensor);
}

Work StagedCommunicator::do_barrier(const CollectiveOptions& options) {
  settle(options);
  inner_->barrier(on_host(options)).wait_host();
  return {};
}

}  // namespace tandem
