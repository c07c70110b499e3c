#include "tests/tools/faulty.h"

#include <algorithm>

namespace tandem::test {

namespace {

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::string name, std::unique_ptr<Communicator> inner, Device& device,
                     Ledger* ledger, Profiler* profiler, Intercept intercept)
      : Communicator(std::move(name), inner->ranks(), inner->index(), device, ledger, profiler),
        inner_(std::move(inner)),
        intercept_(std::move(intercept)) {}

 private:
  Work intercept(const Tensor& input, const Tensor& output, const CollectiveOptions& options,
                 std::function<void()> forward) {
    intercept_({.group = name(),
                .label = std::string(options.label),
                .index = index(),
                .size = size(),
                .input = input,
                .output = output,
                .forward = std::move(forward)});
    return {};
  }
  Work do_all_reduce(const Tensor& tensor, const CollectiveOptions& options) override {
    return intercept(tensor, tensor, options,
                     [&] { inner_->all_reduce(tensor, options).wait_host(); });
  }
  Work do_all_gather(const Tensor& input, const Tensor& output,
                     const CollectiveOptions& options) override {
    return intercept(input, output, options,
                     [&] { inner_->all_gather(input, output, options).wait_host(); });
  }
  Work do_reduce_scatter(const Tensor& input, const Tensor& output,
                         const CollectiveOptions& options) override {
    return intercept(input, output, options,
                     [&] { inner_->reduce_scatter(input, output, options).wait_host(); });
  }
  Work do_all_to_all(const Tensor& input, std::span<const std::int64_t> send_rows,
                     const Tensor& output, std::span<const std::int64_t> receive_rows,
                     const CollectiveOptions& options) override {
    return inner_->all_to_all(input, send_rows, output, receive_rows, options);
  }
  Work do_broadcast(const Tensor& tensor, int root, const CollectiveOptions& options) override {
    return inner_->broadcast(tensor, root, options);
  }
  Work do_barrier(const CollectiveOptions& options) override { return inner_->barrier(options); }

  std::unique_ptr<Communicator> inner_;
  Intercept intercept_;
};

class FaultyDevice final : public verify::ForwardingDevice {
 public:
  FaultyDevice(Device& real, FaultyKernels kernels)
      : ForwardingDevice(real), kernels_(std::move(kernels)) {}

  void gemm(Stream& stream, const Gemm& args) override {
    kernels_.gemm ? kernels_.gemm(inner(), stream, args) : inner().gemm(stream, args);
  }
  void activation_forward(Stream& stream, const ActivationForward& args) override {
    kernels_.activation_forward ? kernels_.activation_forward(inner(), stream, args)
                                : inner().activation_forward(stream, args);
  }
  void activation_backward(Stream& stream, const ActivationBackward& args) override {
    kernels_.activation_backward ? kernels_.activation_backward(inner(), stream, args)
                                 : inner().activation_backward(stream, args);
  }
  void norm_forward(Stream& stream, const NormForward& args) override {
    kernels_.norm_forward ? kernels_.norm_forward(inner(), stream, args)
                          : inner().norm_forward(stream, args);
  }
  void norm_backward(Stream& stream, const NormBackward& args) override {
    kernels_.norm_backward ? kernels_.norm_backward(inner(), stream, args)
                           : inner().norm_backward(stream, args);
  }
  void embedding_forward(Stream& stream, const EmbeddingForward& args) override {
    kernels_.embedding_forward ? kernels_.embedding_forward(inner(), stream, args)
                               : inner().embedding_forward(stream, args);
  }
  void embedding_backward(Stream& stream, const EmbeddingBackward& args) override {
    kernels_.embedding_backward ? kernels_.embedding_backward(inner(), stream, args)
                                : inner().embedding_backward(stream, args);
  }
  void cross_entropy_sums(Stream& stream, const CrossEntropySums& args) override {
    kernels_.cross_entropy_sums ? kernels_.cross_entropy_sums(inner(), stream, args)
                                : inner().cross_entropy_sums(stream, args);
  }
  void cross_entropy_backward(Stream& stream, const CrossEntropyBackward& args) override {
    kernels_.cross_entropy_backward ? kernels_.cross_entropy_backward(inner(), stream, args)
                                    : inner().cross_entropy_backward(stream, args);
  }
  void mean_squared_error(Stream& stream, const MeanSquaredError& args) override {
    kernels_.mean_squared_error ? kernels_.mean_squared_error(inner(), stream, args)
                                : inner().mean_squared_error(stream, args);
  }
  void bias_dropout_add(Stream& stream, const BiasDropoutAdd& args) override {
    kernels_.bias_dropout_add ? kernels_.bias_dropout_add(inner(), stream, args)
                              : inner().bias_dropout_add(stream, args);
  }
  void dropout_backward(Stream& stream, const DropoutBackward& args) override {
    kernels_.dropout_backward ? kernels_.dropout_backward(inner(), stream, args)
                              : inner().dropout_backward(stream, args);
  }
  void column_sum(Stream& stream, const ColumnSum& args) override {
    kernels_.column_sum ? kernels_.column_sum(inner(), stream, args)
                        : inner().column_sum(stream, args);
  }
  void sum_of_squares(Stream& stream, const SumOfSquares& args) override {
    kernels_.sum_of_squares ? kernels_.sum_of_squares(inner(), stream, args)
                            : inner().sum_of_squares(stream, args);
  }
  void adamw(Stream& stream, const AdamW& args) override {
    kernels_.adamw ? kernels_.adamw(inner(), stream, args) : inner().adamw(stream, args);
  }
  void sgd(Stream& stream, const Sgd& args) override {
    kernels_.sgd ? kernels_.sgd(inner(), stream, args) : inner().sgd(stream, args);
  }

 private:
  FaultyKernels kernels_;
};

class FaultySource final : public DataSource {
 public:
  FaultySource(std::unique_ptr<DataSource> real, ChangeStep change)
      : real_(std::move(real)), change_(std::move(change)) {}

  std::span<const MicroBatch> fetch_step(std::int64_t consumed_samples) override {
    const auto batches = real_->fetch_step(consumed_samples);
    changed_.assign(batches.begin(), batches.end());
    change_(changed_);
    return changed_;
  }
  std::int64_t evaluation_batches() const override { return 0; }
  const MicroBatch& fetch_evaluation(std::int64_t index) override {
    return real_->fetch_evaluation(index);
  }
  std::string describe() const override { return real_->describe(); }

 private:
  std::unique_ptr<DataSource> real_;
  ChangeStep change_;
  std::vector<MicroBatch> changed_;
};

}  // namespace

std::unique_ptr<Communicator> FaultyWorld::make_group(const std::string& name,
                                                      const std::vector<int>& ranks, Device& device,
                                                      Ledger* ledger, Profiler* profiler) {
  if (name == "tp") {
    tp_ranks_ = ranks;
  }
  const bool wrong = dp_is_tp_ && name == "dp";
  auto inner = inner_->make_group(name, wrong ? tp_ranks_ : ranks, device, nullptr, nullptr);
  return std::make_unique<FaultyCommunicator>(name, std::move(inner), device, ledger, profiler,
                                              intercept_);
}

std::unique_ptr<Device> make_faulty_device(Device& real, FaultyKernels kernels) {
  return std::make_unique<FaultyDevice>(real, std::move(kernels));
}

std::unique_ptr<DataSource> make_faulty_source(std::unique_ptr<DataSource> real,
                                               ChangeStep change) {
  return std::make_unique<FaultySource>(std::move(real), std::move(change));
}

Config fault_config() {
  Config config;
  config.name = "faults";
  config.threads = 1;
  config.parallel = {.tp = 2, .dp = 2};
  config.model = {.vocab_size = 49, .context = 4, .hidden = 16, .ffn = 32, .layers = 2};
  config.data = {.format = DataFormat::kSynthetic, .seq_len = 48, .valid_fraction = 0.0};
  config.train = {
      .steps = 2, .micro_batch = 2, .global_batch = 8, .clip_grad_norm = 0.05, .eval_every = 0};
  config.optim.lr = 1e-2;
  config.optim.schedule = {.warmup_steps = 2, .decay_steps = 20, .min_lr = 1e-3};
  return config;
}

}  // namespace tandem::test
