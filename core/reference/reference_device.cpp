// The reference device: plain loops in double over whatever types the tensors hold. It is the fp64
// device of whole models and the oracle of other devices' kernels.
#include <memory>
#include <string>

#include "core/device.h"
#include "core/host_memory.h"
#include "core/immediate_stream.h"
#include "core/kernel_checks.h"
#include "core/reference/kernels.h"

namespace tandem {
namespace {

class ReferenceDevice final : public Device {
 public:
  explicit ReferenceDevice(int threads) : threads_(threads) {
    ensure(threads >= 1, "a device needs at least one thread");
  }

  DeviceKind kind() const override { return DeviceKind::kReference; }
  std::string describe() const override {
    return "reference: plain loops in double, " + std::to_string(threads_) +
           (threads_ == 1 ? " thread" : " threads");
  }
  void* allocate(std::size_t bytes) override { return allocate_host(bytes); }
  void deallocate(void* memory) noexcept override { free_host(memory); }
  std::unique_ptr<Stream> make_stream(const std::string&) override {
    return std::make_unique<ImmediateStream>();
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<ImmediateEvent>(); }

  void copy(Stream&, const Tensor& from, const Tensor& to) override { copy_host(from, to); }
  void fill_zero(Stream&, const Tensor& tensor) override { fill_zero_host(tensor); }
  void cast(Stream&, const Tensor& from, const Tensor& to) override {
    check_cast(from, to);
    reference::cast(from, to, threads_);
  }
  void gemm(Stream&, const Gemm& args) override {
    check(args);
    reference::gemm(args, threads_, scratch_);
  }
  void activation_forward(Stream&, const ActivationForward& args) override {
    check(args);
    reference::activation_forward(args, threads_);
  }
  void activation_backward(Stream&, const ActivationBackward& args) override {
    check(args);
    reference::activation_backward(args, threads_);
  }
  void norm_forward(Stream&, const NormForward& args) override {
    check(args);
    reference::norm_forward(args, threads_);
  }
  void norm_backward(Stream&, const NormBackward& args) override {
    check(args);
    reference::norm_backward(args, threads_, scratch_);
  }
  void embedding_forward(Stream&, const EmbeddingForward& args) override {
    check(args);
    reference::embedding_forward(args, threads_);
  }
  void embedding_backward(Stream&, const EmbeddingBackward& args) override {
    check(args);
    reference::embedding_backward(args, threads_, scratch_);
  }
  void cross_entropy_max(Stream&, const CrossEntropyMax& args) override {
    check(args);
    reference::cross_entropy_max(args, threads_);
  }
  void cross_entropy_sums(Stream&, const CrossEntropySums& args) override {
    check(args);
    reference::cross_entropy_sums(args, threads_);
  }
  void cross_entropy_backward(Stream&, const CrossEntropyBackward& args) override {
    check(args);
    reference::cross_entropy_backward(args, threads_);
  }
  void mean_squared_error(Stream&, const MeanSquaredError& args) override {
    check(args);
    reference::mean_squared_error(args, threads_);
  }
  void bias_dropout_add(Stream&, const BiasDropoutAdd& args) override {
    check(args);
    reference::bias_dropout_add(args, threads_);
  }
  void dropout_backward(Stream&, const DropoutBackward& args) override {
    check(args);
    reference::dropout_backward(args, threads_);
  }
  void column_sum(Stream&, const ColumnSum& args) override {
    check(args);
    reference::column_sum(args, threads_, scratch_);
  }
  void sum_of_squares(Stream&, const SumOfSquares& args) override {
    check(args);
    reference::sum_of_squares(args);
  }
  void adamw(Stream&, const AdamW& args) override {
    check(args);
    reference::adamw(args, threads_);
  }
  void sgd(Stream&, const Sgd& args) override {
    check(args);
    reference::sgd(args, threads_);
  }
  void reduce_ranks(Stream&, const ReduceRanks& args) override {
    check(args);
    reference::reduce_ranks(args, threads_);
  }

 private:
  int threads_;
  HostScratch scratch_;
};

}  // namespace

std::unique_ptr<Device> make_reference_device(int threads) {
  return std::make_unique<ReferenceDevice>(threads);
}

}  // namespace tandem
