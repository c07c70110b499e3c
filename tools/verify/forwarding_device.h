// A device that passes every call on to another. What wants to watch or change some kernels derives
// from it and overrides those.
#pragma once

#include <memory>
#include <string>

#include "core/device.h"

namespace tandem::verify {

class ForwardingDevice : public Device {
 public:
  /// `inner` outlives this.
  explicit ForwardingDevice(Device& inner) : inner_(&inner) {}

  DeviceKind kind() const override { return inner_->kind(); }
  std::string describe() const override { return inner_->describe(); }
  void* allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void deallocate(void* memory) noexcept override { inner_->deallocate(memory); }
  bool host_memory() const override { return inner_->host_memory(); }
  std::size_t free_memory() const override { return inner_->free_memory(); }
  void* allocate_staging(std::size_t bytes) override { return inner_->allocate_staging(bytes); }
  void deallocate_staging(void* memory) noexcept override { inner_->deallocate_staging(memory); }
  std::unique_ptr<Stream> make_stream(const std::string& name) override {
    return inner_->make_stream(name);
  }
  std::unique_ptr<Event> make_event() override { return inner_->make_event(); }
  void copy(Stream& stream, const Tensor& from, const Tensor& to) override {
    inner_->copy(stream, from, to);
  }
  void cast(Stream& stream, const Tensor& from, const Tensor& to) override {
    inner_->cast(stream, from, to);
  }
  void fill_zero(Stream& stream, const Tensor& tensor) override {
    inner_->fill_zero(stream, tensor);
  }
  void gemm(Stream& stream, const Gemm& args) override { inner_->gemm(stream, args); }
  void activation_forward(Stream& stream, const ActivationForward& args) override {
    inner_->activation_forward(stream, args);
  }
  void activation_backward(Stream& stream, const ActivationBackward& args) override {
    inner_->activation_backward(stream, args);
  }
  void norm_forward(Stream& stream, const NormForward& args) override {
    inner_->norm_forward(stream, args);
  }
  void norm_backward(Stream& stream, const NormBackward& args) override {
    inner_->norm_backward(stream, args);
  }
  void embedding_forward(Stream& stream, const EmbeddingForward& args) override {
    inner_->embedding_forward(stream, args);
  }
  void embedding_backward(Stream& stream, const EmbeddingBackward& args) override {
    inner_->embedding_backward(stream, args);
  }
  void cross_entropy_max(Stream& stream, const CrossEntropyMax& args) override {
    inner_->cross_entropy_max(stream, args);
  }
  void cross_entropy_sums(Stream& stream, const CrossEntropySums& args) override {
    inner_->cross_entropy_sums(stream, args);
  }
  void cross_entropy_backward(Stream& stream, const CrossEntropyBackward& args) override {
    inner_->cross_entropy_backward(stream, args);
  }
  void mean_squared_error(Stream& stream, const MeanSquaredError& args) override {
    inner_->mean_squared_error(stream, args);
  }
  void bias_dropout_add(Stream& stream, const BiasDropoutAdd& args) override {
    inner_->bias_dropout_add(stream, args);
  }
  void dropout_backward(Stream& stream, const DropoutBackward& args) override {
    inner_->dropout_backward(stream, args);
  }
  void column_sum(Stream& stream, const ColumnSum& args) override {
    inner_->column_sum(stream, args);
  }
  void sum_of_squares(Stream& stream, const SumOfSquares& args) override {
    inner_->sum_of_squares(stream, args);
  }
  void adamw(Stream& stream, const AdamW& args) override { inner_->adamw(stream, args); }
  void sgd(Stream& stream, const Sgd& args) override { inner_->sgd(stream, args); }
  void reduce_ranks(Stream& stream, const ReduceRanks& args) override {
    inner_->reduce_ranks(stream, args);
  }

 protected:
  Device& inner() const { return *inner_; }

 private:
  Device* inner_;
};

}  // namespace tandem::verify
