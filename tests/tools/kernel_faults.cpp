// Faults in the kernels of forward and backward, or in how a layer calls them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/tools/faulty.h"

namespace tandem::test {

namespace {

using StateOf = std::function<const TrainState*()>;

/// A fault in one kernel that needs to know neither rank nor state.
template <typename Arguments>
auto in(Kernel<Arguments> FaultyKernels::*kernel, Kernel<Arguments> fault) {
  return [=](const Layout&, const StateOf&) {
    FaultyKernels kernels;
    kernels.*kernel = fault;
    return kernels;
  };
}

bool is_forward(const Gemm& args) { return args.transpose_b; }
bool is_input_gradient(const Gemm& args) { return !args.transpose_a && !args.transpose_b; }

const Parameter* owner_of(const Tensor& weight, const TrainState& state) {
  for (const Parameter& parameter : state.store.parameters()) {
    if (parameter.weight.data == weight.data) {
      return &parameter;
    }
  }
  return nullptr;
}

/// A fault in the matmuls with a weight whose name ends so: forward or input gradient.
auto in_matmul(const std::string& weight, bool forward,
               const std::function<void(Device&, Stream&, Gemm, const TrainState&)>& fault) {
  return [=](const Layout&, const StateOf& state) {
    FaultyKernels kernels;
    kernels.gemm = [=](Device& real, Stream& stream, Gemm args) {
      const Parameter* owner = owner_of(args.b, *state());
      const bool right_kind = forward ? is_forward(args) : is_input_gradient(args);
      if (right_kind && owner != nullptr && owner->name().ends_with(weight)) {
        fault(real, stream, args, *state());
      } else {
        real.gemm(stream, args);
      }
    };
    return kernels;
  };
}

void clear_last_column(const Tensor& matrix) {
  for (std::int64_t r = 0; r < matrix.dim(0); ++r) {
    matrix.as<float>()[(r + 1) * matrix.dim(1) - 1] = 0.0f;
  }
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

/// Row numbers of the micro-batch in the place of keys.
std::vector<std::int64_t> row_numbers(const Tensor& keys) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(keys.numel()));
  std::iota(numbers.begin(), numbers.end(), 100000);
  return numbers;
}

template <typename Arguments>
void with_row_numbers(Device& real, Stream& stream, Arguments args,
                      void (Device::*kernel)(Stream&, const Arguments&)) {
  std::vector<std::int64_t> numbers = row_numbers(args.row_keys);
  args.row_keys = Tensor::of<std::int64_t>(numbers, {std::ssize(numbers)});
  (real.*kernel)(stream, args);
}

Config with(void (*change)(Config&)) {
  Config config = fault_config();
  change(config);
  return config;
}

std::vector<Fault> matmul_faults() {
  const Config plain = fault_config();
  const Config swiglu = with([](Config& c) { c.model.activation = Activation::kSwiglu; });
  const auto drop_column = [](Device& real, Stream& stream, const Gemm& args, const TrainState&) {
    real.gemm(stream, args);
    clear_last_column(args.c);
  };
  std::vector<Fault> faults;
  faults.push_back({.name = "fc1 without its last column",
                    .config = plain,
                    .named = {"fc1's matmul"},
                    .kernels = in_matmul("layers.1.fc1.weight", true, drop_column)});
  faults.push_back({.name = "fc2 without its last column",
                    .config = plain,
                    .named = {"fc2's matmul"},
                    .kernels = in_matmul("layers.0.fc2.weight", true, drop_column)});
  faults.push_back({.name = "the head without its last column",
                    .config = plain,
                    .named = {"head's matmul"},
                    .kernels = in_matmul("head.weight", true, drop_column)});
  faults.push_back(
      {.name = "fc1's bias left out",
       .config = plain,
       .named = {"fc1's matmul and bias"},
       .kernels = in_matmul("layers.0.fc1.weight", true,
                            [](Device& real, Stream& stream, Gemm args, const TrainState&) {
                              args.bias = Tensor();
                              real.gemm(stream, args);
                            })});
  faults.push_back(
      {.name = "fc2's bias added before the reduction",
       .config = plain,
       .named = {"fc2's matmul", "adds no bias"},
       .kernels = in_matmul(
           ".fc2.weight", true,
           [](Device& real, Stream& stream, Gemm args, const TrainState& state) {
             std::string name = owner_of(args.b, state)->name();
             args.bias = state.store.find(name.replace(name.rfind("weight"), 6, "bias")).weight;
             real.gemm(stream, args);
           })});
  faults.push_back(
      {.name = "swiglu's gate and up swapped",
       .config = swiglu,
       .named = {"fc1's matmul", "[gate; up]"},
       .kernels = in_matmul("layers.0.fc1.weight", true,
                            [](Device& real, Stream& stream, const Gemm& args, const TrainState&) {
                              real.gemm(stream, args);
                              const std::int64_t n = args.c.dim(1);
                              for (std::int64_t r = 0; r < args.c.dim(0); ++r) {
                                float* row = args.c.as<float>() + r * n;
                                std::rotate(row, row + n / 2, row + n);
                              }
                            })});
  faults.push_back(
      {.name = "an all-reduce in g's backward",
       .config = plain,
       .named = {"g of layers.1", "ReduceFromTensorParallel.backward"},
       .kernels = in_matmul("layers.1.fc2.weight", false,
                            [](Device& real, Stream& stream, const Gemm& args, const TrainState&) {
                              for (float& value : args.a.span<float>()) {
                                value *= 2.0f;  // both ranks hold the same
                              }
                              real.gemm(stream, args);
                            })});
  faults.push_back({.name = "fc2's input gradient without its last column",
                    .config = plain,
                    .named = {"fc2's input-gradient matmul"},
                    .kernels = in_matmul("layers.1.fc2.weight", false, drop_column)});
  faults.push_back({.name = "fc1's input gradient without its last column",
                    .config = plain,
                    .named = {"fc1's input-gradient matmul"},
                    .kernels = in_matmul("layers.0.fc1.weight", false, drop_column)});
  faults.push_back({.name = "the head's input gradient without its last column",
                    .config = plain,
                    .named = {"head's input-gradient matmul"},
                    .kernels = in_matmul("head.weight", false, drop_column)});
  faults.push_back(
      {.name = "weight gradients overwritten by the second micro-batch",
       .config = plain,
       .named = {"accumulation over micro-batches"},
       .kernels = in<Gemm>(&FaultyKernels::gemm, [](Device& real, Stream& stream, Gemm args) {
         args.write = Write::kOverwrite;
         real.gemm(stream, args);
       })});
  faults.push_back(
      {.name = "weight gradients never overwritten",
       .config = plain,
       .named = {"gradients of a later step", "first micro-batch overwrites"},
       .kernels = in<Gemm>(&FaultyKernels::gemm, [](Device& real, Stream& stream, Gemm args) {
         args.write = args.transpose_a ? Write::kAccumulate : args.write;
         real.gemm(stream, args);
       })});
  faults.push_back({.name = "bias gradients without the first row",
                    .config = plain,
                    .named = {"local gradient", ".bias", "backward_weight"},
                    .kernels = in<ColumnSum>(&FaultyKernels::column_sum,
                                             [](Device& real, Stream& stream, ColumnSum args) {
                                               if (args.x.dim(0) > 0) {
                                                 args.x = args.x.slice(0, 1, args.x.dim(0) - 1);
                                               }
                                               real.column_sum(stream, args);
                                             })});
  return faults;
}

std::vector<Fault> activation_and_norm_faults() {
  const Config plain = fault_config();
  const Config rms = with([](Config& c) { c.model.norm = NormKind::kRmsNorm; });
  std::vector<Fault> faults;
  faults.push_back({.name = "gelu by erf",
                    .config = plain,
                    .named = {"activation's forward"},
                    .kernels = in<ActivationForward>(
                        &FaultyKernels::activation_forward,
                        [](Device& real, Stream& stream, ActivationForward args) {
                          real.activation_forward(stream, args);
                          for (std::int64_t i = 0;
                               args.kind == Activation::kGelu && i < args.out.numel(); ++i) {
                            const double x = args.pre.as<float>()[i];
                            args.out.as<float>()[i] = static_cast<float>(x * normal_cdf(x));
                          }
                        })});
  faults.push_back(
      {.name = "gelu's derivative by erf",
       .config = plain,
       .named = {"activation's backward"},
       .kernels = in<ActivationBackward>(
           &FaultyKernels::activation_backward,
           [](Device& real, Stream& stream, ActivationBackward args) {
             if (args.kind != Activation::kGelu) {
               return real.activation_backward(stream, args);
             }
             for (std::int64_t i = 0; i < args.pre.numel(); ++i) {
               const double x = args.pre.as<float>()[i];
               const double slope =
                   normal_cdf(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979);
               args.d_pre.as<float>()[i] = static_cast<float>(slope * args.d_out.as<float>()[i]);
             }
           })});
  faults.push_back({.name = "another eps in the norm",
                    .config = plain,
                    .named = {"norm's forward"},
                    .kernels = in<NormForward>(&FaultyKernels::norm_forward,
                                               [](Device& real, Stream& stream, NormForward args) {
                                                 args.eps = 1.1e-5;
                                                 real.norm_forward(stream, args);
                                               })});
  faults.push_back({.name = "another eps in the RMS norm",
                    .config = rms,
                    .named = {"norm's forward"},
                    .kernels = in<NormForward>(&FaultyKernels::norm_forward,
                                               [](Device& real, Stream& stream, NormForward args) {
                                                 args.eps *= 2;
                                                 real.norm_forward(stream, args);
                                               })});
  faults.push_back(
      {.name = "norm's backward without the residual",
       .config = plain,
       .named = {"norm's backward", "layers.1"},
       .kernels = in<NormBackward>(
           &FaultyKernels::norm_backward, [](Device& real, Stream& stream, NormBackward args) {
             std::vector<float> none(static_cast<std::size_t>(args.d_x.numel()), 0.0f);
             if (!args.residual.absent()) {
               args.residual = Tensor::of<float>(none, args.residual.shape);
             }
             real.norm_backward(stream, args);
           })});
  faults.push_back(
      {.name = "norm gradients overwritten by the second micro-batch",
       .config = plain,
       .named = {"local gradient norm.", "accumulation over micro-batches"},
       .kernels = in<NormBackward>(&FaultyKernels::norm_backward,
                                   [](Device& real, Stream& stream, NormBackward args) {
                                     args.write = Write::kOverwrite;
                                     real.norm_backward(stream, args);
                                   })});
  return faults;
}

std::vector<Fault> embedding_and_loss_faults() {
  const Config plain = fault_config();
  std::vector<Fault> faults;
  faults.push_back(
      {.name = "embedding shards off by one",
       .config = plain,
       .named = {"embedding's lookup"},
       .kernels = in<EmbeddingForward>(&FaultyKernels::embedding_forward,
                                       [](Device& real, Stream& stream, EmbeddingForward args) {
                                         args.vocab_start += args.vocab_start > 0 ? 1 : 0;
                                         real.embedding_forward(stream, args);
                                       })});
  faults.push_back(
      {.name = "embedding looks up local ids",
       .config = plain,
       .named = {"embedding's lookup"},
       .kernels = in<EmbeddingForward>(&FaultyKernels::embedding_forward,
                                       [](Device& real, Stream& stream, EmbeddingForward args) {
                                         args.vocab_start = 0;
                                         real.embedding_forward(stream, args);
                                       })});
  faults.push_back(
      {.name = "embedding's gradient off by one",
       .config = plain,
       .named = {"local gradient embed.weight"},
       .kernels = in<EmbeddingBackward>(&FaultyKernels::embedding_backward,
                                        [](Device& real, Stream& stream, EmbeddingBackward args) {
                                          args.vocab_start += args.vocab_start > 0 ? 1 : 0;
                                          real.embedding_backward(stream, args);
                                        })});
  faults.push_back(
      {.name = "vocabulary padding in the softmax",
       .config = plain,
       .named = {"row sums", "over real columns only"},
       .kernels = in<CrossEntropySums>(&FaultyKernels::cross_entropy_sums,
                                       [](Device& real, Stream& stream, CrossEntropySums args) {
                                         args.valid_columns = args.logits.dim(1);
                                         real.cross_entropy_sums(stream, args);
                                       })});
  faults.push_back(
      {.name = "the target's logit looked up in the wrong shard",
       .config = plain,
       .named = {"row sums", "the target in one shard"},
       .kernels = in<CrossEntropySums>(&FaultyKernels::cross_entropy_sums,
                                       [](Device& real, Stream& stream, CrossEntropySums args) {
                                         args.vocab_start = 0;
                                         real.cross_entropy_sums(stream, args);
                                       })});
  faults.push_back({.name = "the one-hot in the wrong shard",
                    .config = plain,
                    .named = {"cross-entropy's backward"},
                    .kernels = in<CrossEntropyBackward>(
                        &FaultyKernels::cross_entropy_backward,
                        [](Device& real, Stream& stream, CrossEntropyBackward args) {
                          args.vocab_start = 0;
                          real.cross_entropy_backward(stream, args);
                        })});
  faults.push_back({.name = "a mean of micro-batch means",
                    .config = plain,
                    .named = {"d_logits", "token weighting"},
                    .kernels = in<CrossEntropyBackward>(
                        &FaultyKernels::cross_entropy_backward,
                        [](Device& real, Stream& stream, CrossEntropyBackward args) {
                          const auto targets = args.targets.span<std::int32_t>();
                          const auto tokens = std::count_if(targets.begin(), targets.end(),
                                                            [](auto t) { return t >= 0; });
                          args.scale = tokens == 0 ? 0.0 : 1.0 / static_cast<double>(4 * tokens);
                          real.cross_entropy_backward(stream, args);
                        })});
  faults.push_back({.name = "seeds off by 1e-5",
                    .config = plain,
                    .named = {"d_logits", "token weighting"},
                    .kernels = in<CrossEntropyBackward>(
                        &FaultyKernels::cross_entropy_backward,
                        [](Device& real, Stream& stream, CrossEntropyBackward args) {
                          args.scale *= 1.0 + 1e-5;
                          real.cross_entropy_backward(stream, args);
                        })});
  const Config ffn = with([](Config& c) { c.model.kind = ModelKind::kFfn; });
  faults.push_back(
      {.name = "half the mean squared error's gradient",
       .config = ffn,
       .named = {"d_y", "token weighting"},
       .kernels = in<MeanSquaredError>(&FaultyKernels::mean_squared_error,
                                       [](Device& real, Stream& stream, MeanSquaredError args) {
                                         args.scale /= 2.0;
                                         real.mean_squared_error(stream, args);
                                       })});
  return faults;
}

std::vector<Fault> dropout_faults() {
  const Config dropout = with([](Config& c) { c.model.dropout = 0.25; });
  const Config sp = with([](Config& c) {
    c.model.dropout = 0.25;
    c.parallel.sequence_parallel = true;
  });
  std::vector<Fault> faults;
  for (const Config& config : {dropout, sp}) {
    const std::string where =
        config.parallel.sequence_parallel ? " under sequence parallelism" : "";
    faults.push_back({.name = "dropout's mask by row number" + where,
                      .config = config,
                      .named = {"dropout", "mask by row key"},
                      .kernels = [](const Layout&, const StateOf&) {
                        FaultyKernels kernels;
                        kernels.bias_dropout_add = [](Device& real, Stream& stream,
                                                      const BiasDropoutAdd& args) {
                          with_row_numbers(real, stream, args, &Device::bias_dropout_add);
                        };
                        kernels.dropout_backward = [](Device& real, Stream& stream,
                                                      const DropoutBackward& args) {
                          with_row_numbers(real, stream, args, &Device::dropout_backward);
                        };
                        return kernels;
                      }});
  }
  faults.push_back(
      {.name = "dropout's backward with another mask",
       .config = dropout,
       .named = {"dropout's backward"},
       .kernels = in<DropoutBackward>(&FaultyKernels::dropout_backward,
                                      [](Device& real, Stream& stream, DropoutBackward args) {
                                        args.dropout.update += 1;
                                        real.dropout_backward(stream, args);
                                      })});
  faults.push_back(
      {.name = "the same mask in every layer",
       .config = dropout,
       .named = {"dropout", "layers.1"},
       .kernels = in<BiasDropoutAdd>(&FaultyKernels::bias_dropout_add,
                                     [](Device& real, Stream& stream, BiasDropoutAdd args) {
                                       args.dropout.layer = 0;
                                       real.bias_dropout_add(stream, args);
                                     })});
  faults.push_back(
      {.name = "dropout without 1 / (1 - p)",
       .config = dropout,
       .named = {"dropout", "1 / (1 - p)"},
       .kernels = in<BiasDropoutAdd>(&FaultyKernels::bias_dropout_add,
                                     [](Device& real, Stream& stream, BiasDropoutAdd args) {
                                       const auto keep = static_cast<float>(1.0 - args.dropout.p);
                                       std::vector<float> bias(args.bias.span<float>().begin(),
                                                               args.bias.span<float>().end());
                                       for (float& value : bias) {
                                         value *= keep;
                                       }
                                       for (float& value : args.branch.span<float>()) {
                                         value *= keep;
                                       }
                                       args.bias = Tensor::of<float>(bias, args.bias.shape);
                                       real.bias_dropout_add(stream, args);
                                     })});
  faults.push_back(
      {.name = "the same mask in every step",
       .config = dropout,
       .named = {"later step", "dropout's update"},
       .kernels = in<BiasDropoutAdd>(&FaultyKernels::bias_dropout_add,
                                     [](Device& real, Stream& stream, BiasDropoutAdd args) {
                                       args.dropout.update = 1;
                                       real.bias_dropout_add(stream, args);
                                     })});
  faults.push_back(
      {.name = "the bias counted once per tensor-parallel rank",
       .config = fault_config(),
       .named = {"bias, dropout", "bias once"},
       .kernels = in<BiasDropoutAdd>(&FaultyKernels::bias_dropout_add,
                                     [](Device& real, Stream& stream, BiasDropoutAdd args) {
                                       std::vector<float> bias(args.bias.span<float>().begin(),
                                                               args.bias.span<float>().end());
                                       for (float& value : bias) {
                                         value *= 2.0f;
                                       }
                                       args.bias = Tensor::of<float>(bias, args.bias.shape);
                                       real.bias_dropout_add(stream, args);
                                     })});
  faults.push_back(
      {.name = "a residual left out",
       .config = fault_config(),
       .named = {"residual"},
       .kernels = in<BiasDropoutAdd>(
           &FaultyKernels::bias_dropout_add, [](Device& real, Stream& stream, BiasDropoutAdd args) {
             std::vector<float> none(static_cast<std::size_t>(args.residual.numel()), 0.0f);
             args.residual = Tensor::of<float>(none, args.residual.shape);
             real.bias_dropout_add(stream, args);
           })});
  return faults;
}

}  // namespace

std::vector<Fault> kernel_faults() {
  std::vector<Fault> all = matmul_faults();
  for (const auto& group :
       {activation_and_norm_faults(), embedding_and_loss_faults(), dropout_faults()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

}  // namespace tandem::test
