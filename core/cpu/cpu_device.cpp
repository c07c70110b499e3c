// The cpu device: oneDNN for matrix products, Highway for the rest. Kernels run inline in the
// calling thread, split over the device's own number of OpenMP threads.
#include <fstream>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <string>

#include "core/cpu/kernels.h"
#include "core/cpu/matmul.h"
#include "core/cpu/onednn.h"
#include "core/device.h"
#include "core/host_memory.h"
#include "core/immediate_stream.h"
#include "core/kernel_checks.h"

namespace tandem {
namespace {

/// "AMD EPYC 9R14" from /proc/cpuinfo.
std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const auto start = line.find_first_not_of(" \t", line.find(':') + 1);
      return start == std::string::npos ? "CPU" : line.substr(start);
    }
  }
  return "CPU";
}

/// Types are checked before a kernel starts: nothing may throw from inside a parallel region.
void check_types(DType type, std::initializer_list<Tensor> tensors,
                 std::source_location where = std::source_location::current()) {
  for (const Tensor& tensor : tensors) {
    ensure(tensor.absent() || tensor.dtype == type, "tensor of another type than the kernel's",
           where);
  }
}

bool is_storage(DType type) {
  return type == DType::kF32 || type == DType::kBF16 || type == DType::kF16;
}

void check_storage(std::initializer_list<Tensor> tensors,
                   std::source_location where = std::source_location::current()) {
  const DType type = tensors.begin()->dtype;
  ensure(is_storage(type),
         "the cpu device stores fp32, bf16 or fp16 (fp64 runs on the reference device)", where);
  check_types(type, tensors, where);
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : threads_(threads), matmul_(threads) {
    ensure(threads >= 1, "a device needs at least one thread");
  }

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string describe() const override {
    return "cpu: " + cpu_model() + ", oneDNN " + cpu::onednn_version() + ", " +
           std::to_string(threads_) + (threads_ == 1 ? " thread" : " threads") +
           (cpu::multiplies_bf16() ? ", bf16 matmul native" : ", bf16 matmul converted to fp32");
  }
  void* allocate(std::size_t bytes) override { return allocate_host(bytes); }
  void deallocate(void* memory) noexcept override { free_host(memory); }
  std::unique_ptr<Stream> make_stream(const std::string&) override {
    return std::make_unique<ImmediateStream>();
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<ImmediateEvent>(); }

  // Copies, casts and rank reductions touch no member of the device: a communication thread may
  // call them while the rank's own thread computes.
  void copy(Stream&, const Tensor& from, const Tensor& to) override { copy_host(from, to); }
  void fill_zero(Stream&, const Tensor& tensor) override { fill_zero_host(tensor); }
  void cast(Stream&, const Tensor& from, const Tensor& to) override {
    check_cast(from, to);
    cpu::cast(from, to, threads_);
  }
  void reduce_ranks(Stream&, const ReduceRanks& args) override {
    check(args);
    cpu::reduce_ranks(args, threads_);
  }

  void gemm(Stream&, const Gemm& args) override {
    check(args);
    check_storage({args.a, args.b, args.bias});
    ensure(is_storage(args.c.dtype), "gemm: type of c");
    matmul_.run(args);
  }
  void activation_forward(Stream&, const ActivationForward& args) override {
    check(args);
    check_storage({args.out, args.pre});
    cpu::activation_forward(args, threads_);
  }
  void activation_backward(Stream&, const ActivationBackward& args) override {
    check(args);
    check_storage({args.d_out, args.pre, args.d_pre});
    cpu::activation_backward(args, threads_);
  }
  void norm_forward(Stream&, const NormForward& args) override {
    check(args);
    check_storage({args.x, args.weight, args.bias, args.y});
    check_types(DType::kF32, {args.mean, args.rstd});
    cpu::norm_forward(args, threads_);
  }
  void norm_backward(Stream&, const NormBackward& args) override {
    check(args);
    check_storage({args.x, args.weight, args.d_y, args.residual, args.d_x});
    check_types(DType::kF32, {args.mean, args.rstd, args.d_weight, args.d_bias});
    cpu::norm_backward(args, threads_);
  }
  void embedding_forward(Stream&, const EmbeddingForward& args) override {
    check(args);
    check_storage({args.table, args.y});
    cpu::embedding_forward(args, threads_);
  }
  void embedding_backward(Stream&, const EmbeddingBackward& args) override {
    check(args);
    check_storage({args.d_y});
    check_types(DType::kF32, {args.d_table});
    cpu::embedding_backward(args, threads_);
  }
  void cross_entropy_max(Stream&, const CrossEntropyMax& args) override {
    check(args);
    check_storage({args.logits});
    check_types(DType::kF32, {args.row_max});
    cpu::cross_entropy_max(args, threads_);
  }
  void cross_entropy_sums(Stream&, const CrossEntropySums& args) override {
    check(args);
    check_storage({args.logits});
    check_types(DType::kF32, {args.row_max, args.sums});
    cpu::cross_entropy_sums(args, threads_);
  }
  void cross_entropy_backward(Stream&, const CrossEntropyBackward& args) override {
    check(args);
    check_storage({args.logits, args.d_logits});
    check_types(DType::kF32, {args.row_max, args.sums});
    cpu::cross_entropy_backward(args, threads_);
  }
  void mean_squared_error(Stream&, const MeanSquaredError& args) override {
    check(args);
    check_storage({args.y, args.target, args.d_y});
    cpu::mean_squared_error(args, threads_);
  }
  void bias_dropout_add(Stream&, const BiasDropoutAdd& args) override {
    check(args);
    check_storage({args.branch, args.bias, args.residual, args.out});
    cpu::bias_dropout_add(args, threads_);
  }
  void dropout_backward(Stream&, const DropoutBackward& args) override {
    check(args);
    check_storage({args.d_out, args.d_in});
    cpu::dropout_backward(args, threads_);
  }
  void column_sum(Stream&, const ColumnSum& args) override {
    check(args);
    check_storage({args.x});
    check_types(DType::kF32, {args.out});
    cpu::column_sum(args, threads_);
  }
  void sum_of_squares(Stream&, const SumOfSquares& args) override {
    check(args);
    check_storage({args.x});
    cpu::sum_of_squares(args, threads_);
  }
  void adamw(Stream&, const AdamW& args) override {
    check(args);
    check_types(DType::kF32, {args.master, args.m, args.v, args.grad});
    check_storage({args.weight.absent() ? args.master : args.weight});
    cpu::adamw(args, threads_);
  }
  void sgd(Stream&, const Sgd& args) override {
    check(args);
    check_types(DType::kF32, {args.master, args.buffer, args.grad});
    check_storage({args.weight.absent() ? args.master : args.weight});
    cpu::sgd(args, threads_);
  }

 private:
  int threads_;
  cpu::Matmul matmul_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace tandem
