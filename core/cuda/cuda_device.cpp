#include "core/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/cuda/error.h"
#include "core/cuda/kernels.h"
#include "core/cuda/matmul.h"
#include "core/cuda/matmul_plan.h"
#include "core/cuda/memory.h"
#include "core/cuda/stream.h"
#include "core/host_memory.h"
#include "core/kernel_checks.h"

namespace tandem::cuda {
namespace {

/// Rows of a matrix, or everything at once: what cudaMemcpy2D and cudaMemset2D want.
struct Rows {
  std::size_t width, height;
};
Rows rows_of(const Tensor& tensor) {
  return {static_cast<std::size_t>(tensor.dim(1)) * size_of(tensor.dtype),
          static_cast<std::size_t>(tensor.dim(0))};
}
std::size_t pitch_of(const Tensor& tensor) {
  return static_cast<std::size_t>(std::max(tensor.strides[0], tensor.dim(1))) *
         size_of(tensor.dtype);
}

void check_rows(const Tensor& tensor) {
  ensure(tensor.is_contiguous() || (tensor.rank() == 2 && tensor.strides[1] == 1),
         "only rank-2 tensors may have strided rows");
}

/// Between memory that CUDA knows, or with the driver's own staging.
void queue_copy(cudaStream_t stream, const Tensor& from, const Tensor& to) {
  if (from.is_contiguous() && to.is_contiguous()) {
    check_status(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, stream),
                 "cudaMemcpyAsync");
    return;
  }
  const Rows rows = rows_of(from);
  check_status(cudaMemcpy2DAsync(to.data, pitch_of(to), from.data, pitch_of(from), rows.width,
                                 rows.height, cudaMemcpyDefault, stream),
               "cudaMemcpy2DAsync");
}

/// A copy that a host thread makes when the stream is there.
void queue_host_copy(cudaStream_t stream, const Tensor& from, const Tensor& to) {
  struct Copy {
    Tensor from, to;
  };
  auto copy = std::make_unique<Copy>(Copy{from, to});
  check_status(cudaLaunchHostFunc(
                   stream,
                   [](void* argument) {
                     const std::unique_ptr<Copy> made(static_cast<Copy*>(argument));
                     copy_host(made->from, made->to);
                   },
                   copy.get()),
               "cudaLaunchHostFunc");
  static_cast<void>(copy.release());  // the function above owns it
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaDeviceOptions& options) : options_(options) {
    const int count = device_count();
    ensure(options.ordinal >= 0 && options.ordinal < count, "no GPU of that number");
    enter();
    check_status(cudaGetDeviceProperties(&properties_, options.ordinal), "cudaGetDeviceProperties");
    if (properties_.major < 8) {
      throw InternalError(std::string(properties_.name) + " has compute capability " +
                          std::to_string(properties_.major) + "." +
                          std::to_string(properties_.minor) + "; Tandem needs 8.0 (Ampere)");
    }
    matmul_ = std::make_unique<Matmul>();
    matmul_settings_ = {
        .tf32 = options.tf32,
        .sms_beside_collective = sms_beside_collective(properties_.multiProcessorCount)};
  }

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string describe() const override {
    int runtime = 0;
    check_status(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    return "cuda: " + std::string(properties_.name) + " (sm_" + std::to_string(properties_.major) +
           std::to_string(properties_.minor) + ", " +
           std::to_string(properties_.multiProcessorCount) + " SMs, " +
           std::to_string(properties_.totalGlobalMem >> 30) + " GiB), CUDA " +
           std::to_string(runtime / 1000) + "." + std::to_string(runtime / 10 % 100) + ", " +
           Matmul::version() + (options_.tf32 ? ", TF32" : "");
  }

  void* allocate(std::size_t bytes) override {
    enter();
    return allocate_zeroed(bytes);
  }
  void deallocate(void* memory) noexcept override {
    report_status(cudaSetDevice(options_.ordinal), "cudaSetDevice");
    report_status(cudaFree(memory), "cudaFree");
  }
  bool host_memory() const override { return false; }
  std::size_t free_memory() const override {
    enter();
    std::size_t available = 0, total = 0;
    check_status(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
    return available;
  }
  void* allocate_staging(std::size_t bytes) override {
    enter();
    void* memory = nullptr;
    check_status(cudaMallocHost(&memory, std::max<std::size_t>(bytes, 1)),
                 "cudaMallocHost of " + std::to_string(bytes) + " bytes");
    std::memset(memory, 0, bytes);
    return memory;
  }
  void deallocate_staging(void* memory) noexcept override {
    report_status(cudaFreeHost(memory), "cudaFreeHost");
  }
  std::unique_ptr<Stream> make_stream(const std::string& name) override {
    enter();
    return std::make_unique<CudaStream>(name, StreamPriority::kNormal);
  }
  std::unique_ptr<Stream> make_communication_stream(const std::string& name) override {
    enter();
    return std::make_unique<CudaStream>(name, StreamPriority::kHigh);
  }
  std::unique_ptr<Event> make_event() override {
    enter();
    return std::make_unique<CudaEvent>();
  }

  // Host memory that is not pinned goes through the stream's staging. It is read at once; it is
  // written when the stream is there, by the host.
  void copy(Stream& on, const Tensor& from, const Tensor& to) override {
    ensure(from.dtype == to.dtype && from.shape == to.shape, "copy between different tensors");
    check_rows(from);
    check_rows(to);
    if (from.numel() == 0) {
      return;
    }
    CudaStream& stream = enter(on);
    const bool from_host = is_pageable(from.data), to_host = is_pageable(to.data);
    if (from_host && to_host) {
      return queue_host_copy(stream.native(), from, to);
    }
    if ((!from_host && !to_host) || from.bytes() > Staging::kLargest) {
      return queue_copy(stream.native(), from, to);
    }
    const Tensor staged(stream.staging().take(from.bytes()), from.dtype, from.shape);
    if (from_host) {
      copy_host(from, staged);
      queue_copy(stream.native(), staged, to);
    } else {
      queue_copy(stream.native(), from, staged);
      queue_host_copy(stream.native(), staged, to);
    }
  }
  void cast(Stream& stream, const Tensor& from, const Tensor& to) override {
    check_cast(from, to);
    cuda::cast(enter(stream).launch(), from, to);
  }
  void fill_zero(Stream& on, const Tensor& tensor) override {
    check_rows(tensor);
    if (tensor.numel() == 0) {
      return;
    }
    const cudaStream_t stream = enter(on).native();
    if (tensor.is_contiguous()) {
      check_status(cudaMemsetAsync(tensor.data, 0, tensor.bytes(), stream), "cudaMemsetAsync");
      return;
    }
    const Rows rows = rows_of(tensor);
    check_status(
        cudaMemset2DAsync(tensor.data, pitch_of(tensor), 0, rows.width, rows.height, stream),
        "cudaMemset2DAsync");
  }

  void gemm(Stream& on, const Gemm& args) override {
    check(args);
    CudaStream& stream = enter(on);
    if (is_empty(args)) {
      if (args.write == Write::kOverwrite && args.bias.absent()) {
        fill_zero(on, args.c);
      } else if (args.write == Write::kOverwrite) {
        add_bias(stream.launch(), args.c, args.bias, Write::kOverwrite);
      }
      return;
    }
    if (multiply(stream, cuda::describe(args, matmul_settings_))) {
      return;
    }
    Gemm plain = args;
    if (!args.bias.absent()) {  // the product added to the bias is rounded once, as it should be
      add_bias(stream.launch(), args.c, args.bias, Write::kOverwrite);
      plain.bias = {};
      plain.write = Write::kAccumulate;
    }
    ensure(multiply(stream, cuda::describe(plain, matmul_settings_)),
           "a plain product did not run");
  }
  bool gemm_activation(Stream& on, const GemmActivation& args) override {
    check(args);
    return (args.kind == Activation::kGelu && !is_empty(args.gemm) &&
            multiply(enter(on), cuda::describe(args, matmul_settings_))) ||
           Device::gemm_activation(on, args);
  }
  bool gemm_activation_backward(Stream& on, const GemmActivationBackward& args) override {
    check(args);
    return (args.kind == Activation::kGelu && !is_empty(args.gemm) &&
            args.d_pre.data != args.pre.data &&
            multiply(enter(on), cuda::describe(args, matmul_settings_))) ||
           Device::gemm_activation_backward(on, args);
  }
  void gemm_bias_gradient(Stream& on, const GemmBiasGradient& args) override {
    check(args);
    CudaStream& stream = enter(on);
    const Launch launch = stream.launch();
    // The epilogue overwrites, and wants 16-byte alignment: it gets scratch, which is then added.
    const Tensor sums(launch.scratch, args.d_bias.dtype, args.d_bias.shape);
    if (is_empty(args.gemm) || args.d_bias.dtype != args.gemm.c.dtype ||
        sums.bytes() > static_cast<std::size_t>(launch.scratch_bytes) ||
        !multiply(stream, cuda::describe(args, sums.data, matmul_settings_))) {
      return Device::gemm_bias_gradient(on, args);
    }
    add_bias(launch, args.d_bias.reshape({1, args.d_bias.dim(0)}), sums, args.gemm.write);
  }

  void activation_forward(Stream& stream, const ActivationForward& args) override {
    run(stream, args, cuda::activation_forward);
  }
  void activation_backward(Stream& stream, const ActivationBackward& args) override {
    run(stream, args, cuda::activation_backward);
  }
  void norm_forward(Stream& stream, const NormForward& args) override {
    run(stream, args, cuda::norm_forward);
  }
  void norm_backward(Stream& stream, const NormBackward& args) override {
    run(stream, args, cuda::norm_backward);
  }
  void embedding_forward(Stream& stream, const EmbeddingForward& args) override {
    run(stream, args, cuda::embedding_forward);
  }
  void embedding_backward(Stream& stream, const EmbeddingBackward& args) override {
    run(stream, args, cuda::embedding_backward);
  }
  void cross_entropy_max(Stream& stream, const CrossEntropyMax& args) override {
    run(stream, args, cuda::cross_entropy_max);
  }
  void cross_entropy_sums(Stream& stream, const CrossEntropySums& args) override {
    run(stream, args, cuda::cross_entropy_sums);
  }
  void cross_entropy_backward(Stream& stream, const CrossEntropyBackward& args) override {
    run(stream, args, cuda::cross_entropy_backward);
  }
  void mean_squared_error(Stream& stream, const MeanSquaredError& args) override {
    run(stream, args, cuda::mean_squared_error);
  }
  void bias_dropout_add(Stream& stream, const BiasDropoutAdd& args) override {
    run(stream, args, cuda::bias_dropout_add);
  }
  void dropout_backward(Stream& stream, const DropoutBackward& args) override {
    run(stream, args, cuda::dropout_backward);
  }
  void column_sum(Stream& stream, const ColumnSum& args) override {
    run(stream, args, cuda::column_sum);
  }
  void sum_of_squares(Stream& stream, const SumOfSquares& args) override {
    run(stream, args, cuda::sum_of_squares);
  }
  void adamw(Stream& stream, const AdamW& args) override { run(stream, args, cuda::adamw); }
  void sgd(Stream& stream, const Sgd& args) override { run(stream, args, cuda::sgd); }
  void reduce_ranks(Stream& stream, const ReduceRanks& args) override {
    run(stream, args, cuda::reduce_ranks);
  }

 private:
  /// A rank has several threads, and a thread that never said so is on GPU 0.
  void enter() const { check_status(cudaSetDevice(options_.ordinal), "cudaSetDevice"); }
  CudaStream& enter(Stream& stream) const {
    enter();
    return dynamic_cast<CudaStream&>(stream);
  }

  template <typename Args>
  void run(Stream& stream, const Args& args, void (*kernel)(const Launch&, const Args&)) const {
    check(args);
    kernel(enter(stream).launch(), args);
  }

  static bool is_empty(const Gemm& args) { return args.c.numel() == 0 || args.a.numel() == 0; }

  bool multiply(CudaStream& stream, const MatmulCall& call) {
    return can_fuse(call) && matmul_->run(stream, call);
  }

  CudaDeviceOptions options_;
  MatmulSettings matmul_settings_;
  cudaDeviceProp properties_{};
  std::unique_ptr<Matmul> matmul_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

int device_count() {
  int count = 0;
  check_status(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return count;
}

cudaStream_t native(Stream& stream) { return dynamic_cast<CudaStream&>(stream).native(); }

}  // namespace tandem::cuda
