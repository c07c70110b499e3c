// A communicator that forwards to another and counts the collectives whose Work was dropped before
// anybody waited for it. Implementations on host memory forgive that (a Work that is dropped waits
// by itself), a GPU's does not.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "parallel/communicator.h"

namespace tandem::test {

class WatchedCommunicator final : public Communicator {
 public:
  WatchedCommunicator(std::unique_ptr<Communicator> inner, Device& device)
      : Communicator(inner->name(), inner->ranks(), inner->index(), device, nullptr, nullptr),
        inner_(std::move(inner)) {}

  int dropped() const { return *dropped_; }

 private:
  class WatchedWork final : public Work::State {
   public:
    WatchedWork(Work inner, std::shared_ptr<std::atomic<int>> dropped)
        : inner_(std::move(inner)), dropped_(std::move(dropped)) {}
    ~WatchedWork() override { *dropped_ += waited_ ? 0 : 1; }
    void wait(Stream& stream) override {
      waited_ = true;
      inner_.wait(stream);
    }
    void wait_host() override {
      waited_ = true;
      inner_.wait_host();
    }

   private:
    Work inner_;
    std::shared_ptr<std::atomic<int>> dropped_;
    bool waited_ = false;
  };

  Work watch(Work work) { return Work(std::make_shared<WatchedWork>(std::move(work), dropped_)); }

  Work do_all_reduce(const Tensor& tensor, const CollectiveOptions& options) override {
    return watch(inner_->all_reduce(tensor, options));
  }
  Work do_all_gather(const Tensor& input, const Tensor& output,
                     const CollectiveOptions& options) override {
    return watch(inner_->all_gather(input, output, options));
  }
  Work do_reduce_scatter(const Tensor& input, const Tensor& output,
                         const CollectiveOptions& options) override {
    return watch(inner_->reduce_scatter(input, output, options));
  }
  Work do_all_to_all(const Tensor& input, std::span<const std::int64_t> send_rows,
                     const Tensor& output, std::span<const std::int64_t> receive_rows,
                     const CollectiveOptions& options) override {
    return watch(inner_->all_to_all(input, send_rows, output, receive_rows, options));
  }
  Work do_broadcast(const Tensor& tensor, int root, const CollectiveOptions& options) override {
    return watch(inner_->broadcast(tensor, root, options));
  }
  Work do_barrier(const CollectiveOptions& options) override {
    return watch(inner_->barrier(options));
  }

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<std::atomic<int>> dropped_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace tandem::test
