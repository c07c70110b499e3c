// The device seam: memory, streams, events, and the list of numeric kernels a layer may call.
//
// Every kernel takes the stream it runs on and one argument struct with named fields; tensors in it
// are views that must stay alive until the stream has passed the call. Kernels never allocate in
// steady state and never block the host. Matrices are row-major [rows, columns] with unit column
// stride; rows may be strided only where a struct says so. Sizes of zero are legal everywhere: an
// overwriting kernel with an empty contraction writes zeros, an empty output returns at once.
//
// Types: "storage" tensors are weights and activations, "main" tensors are masters, main gradients
// and optimizer state, "sum" tensors hold row statistics (see Precision). A kernel reads stored
// values, computes in at least the sum type and rounds once when it writes.
//
// Adding a kernel: a struct and a virtual here, its plain definition in core/reference, its
// implementations in core/cpu and core/cuda, one line in tests/support/deferred_device.cpp, and a
// case in tests/core/kernel_test.cpp, which runs over every device present.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"

namespace tandem {

enum class DeviceKind { kReference, kCpu, kCuda };

class Event;

/// A queue of work in order. Work on different streams is unordered unless an Event orders it.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Marks the present end of this stream in `event`; an earlier mark is forgotten.
  virtual void record(Event& event) = 0;
  /// What follows on this stream starts after the last mark in `event` at the time of the call.
  /// A never-recorded event orders nothing. `event` may belong to another rank's device of the same
  /// process and kind.
  virtual void wait(const Event& event) = 0;
  /// Blocks the host until everything queued so far is done; throws what a kernel threw.
  virtual void synchronize() = 0;
};

class Event {
 public:
  virtual ~Event() = default;
  /// Blocks the host until the last mark is reached.
  virtual void synchronize() const = 0;
};

enum class Activation { kGelu, kSwiglu, kRelu };
enum class NormKind { kLayerNorm, kRmsNorm };
/// How a kernel treats what its gradient output held before.
enum class Write { kOverwrite, kAccumulate };
enum class ReduceOp { kSum, kMax, kMin };

/// c = op(a) op(b) [+ c] [+ bias]; op transposes where asked. a and b are storage; c is storage or
/// main. Rows of a, b and c may be strided. c [m, n]; op(a) [m, k]; op(b) [k, n].
struct Gemm {
  Tensor a, b, c;
  bool transpose_a = false;
  bool transpose_b = false;
  Write write = Write::kOverwrite;
  Tensor bias;  ///< [n], storage; absent for none; only with kOverwrite
  /// A collective runs at the same time: where it needs the units that multiply, some are left to
  /// it. The same values.
  bool beside_collective = false;

  /// k: what is summed over.
  std::int64_t inner() const { return a.dim(transpose_a ? 0 : 1); }
};

/// gelu (tanh form) and relu: out [rows, n] = f(pre [rows, n]). swiglu: pre [rows, 2n] = [gate;
/// up], out = silu(gate) * up.
struct ActivationForward {
  Activation kind = Activation::kGelu;
  Tensor pre, out;
};
/// d_pre may be the same memory as pre, and but for swiglu (whose d_pre is wider) as d_out.
struct ActivationBackward {
  Activation kind = Activation::kGelu;
  Tensor pre, d_out, d_pre;
};

/// A product and what is made of its result at once. Devices that have no such kernel run one after
/// the other; those that have may apply the second step to values that were not rounded between.
///
/// pre = gemm.c, overwritten; out = f(pre).
struct GemmActivation {
  Gemm gemm;
  Activation kind = Activation::kGelu;
  Tensor out;
};
/// d_pre = f'(pre) d_out, where d_out is the product. gemm.c, of d_out's shape, is scratch unless
/// d_pre is the same memory (not swiglu); d_pre may also be pre's memory.
struct GemmActivationBackward {
  Gemm gemm;
  Activation kind = Activation::kGelu;
  Tensor pre, d_pre;
};
/// The gradients of a linear layer's weight, gemm.c = a^T b with a [rows, m] the output's gradient,
/// and of its bias, d_bias [m] main = sum over rows of a; both written as gemm.write says.
struct GemmBiasGradient {
  Gemm gemm;
  Tensor d_bias;
};

/// Layer norm: y = (x - mean) * rstd * weight + bias, rstd = 1/sqrt(var + eps), biased variance.
/// RMS norm: y = x * rstd * weight, rstd = 1/sqrt(mean(x^2) + eps); bias and mean absent.
/// x, y [rows, hidden] storage; weight, bias [hidden] storage; mean, rstd [rows] sum.
struct NormForward {
  NormKind kind = NormKind::kLayerNorm;
  double eps = 1e-5;
  Tensor x, weight, bias, y, mean, rstd;
};
/// d_x = residual + the norm's input gradient (residual absent: 0; may be the same memory as d_x);
/// d_weight, d_bias [hidden] main, written as `write` says.
struct NormBackward {
  NormKind kind = NormKind::kLayerNorm;
  Tensor d_y, x, weight, mean, rstd, residual, d_x, d_weight, d_bias;
  Write write = Write::kOverwrite;
};

/// y[r] = sum over slots j of table[j, ids[r, j] - vocab_start], ids outside this shard (or -1)
/// contributing nothing. ids [rows, context] int32; table [context, vocab_local, hidden] storage;
/// y [rows, hidden] storage, summed in the sum type in slot order.
struct EmbeddingForward {
  Tensor ids, table, y;
  std::int64_t vocab_start = 0;
};
/// d_table[j, v] (+)= sum of d_y[r] over rows with ids[r, j] = vocab_start + v, in row order: no
/// atomics, the same bits on every device. workspace: int32 [context, rows + vocab_local + 1].
struct EmbeddingBackward {
  Tensor ids, d_y, d_table, workspace;
  std::int64_t vocab_start = 0;
  Write write = Write::kOverwrite;
};

/// Vocabulary-parallel softmax cross-entropy in three local pieces; between them the layer reduces
/// row_max (max) and sums (sum) over the tensor-parallel group. logits [rows, vocab_local] storage,
/// of which only the first `valid_columns` are real vocabulary; targets [rows] int32, -1 = ignored.
/// row_max [rows] sum type: max over the valid columns, -infinity if there are none.
struct CrossEntropyMax {
  Tensor logits, row_max;
  std::int64_t valid_columns = 0;
};
/// sums [rows, 2] sum type: {sum of exp(logit - row_max), target logit - row_max if the target is
/// in this shard, else 0}.
struct CrossEntropySums {
  Tensor logits, targets, row_max, sums;
  std::int64_t vocab_start = 0;
  std::int64_t valid_columns = 0;
};
/// loss_sum (float64, [1]) += sum over rows with a target of log(sums[r,0]) - sums[r,1];
/// d_logits = scale * (softmax - onehot) in rows with a target, 0 in others and in padded columns.
/// d_logits absent: loss only. d_logits may be the same memory as logits.
struct CrossEntropyBackward {
  Tensor logits, targets, row_max, sums, d_logits, loss_sum;
  std::int64_t vocab_start = 0;
  std::int64_t valid_columns = 0;
  double scale = 1.0;
};

/// loss_sum (float64, [1]) += sum over rows of mean over hidden of (y - target)^2;
/// d_y = scale * 2 / hidden * (y - target). d_y absent: loss only; d_y may be the same memory as y.
struct MeanSquaredError {
  Tensor y, target, d_y, loss_sum;
  double scale = 1.0;
};

/// Which elements dropout keeps: a Philox draw over (layer, row key, column) under the key
/// (seed, update) is compared with round(p * 2^32). See dropout_keeps() in core/philox.h.
struct Dropout {
  double p = 0.0;
  std::uint64_t seed = 0;
  std::uint32_t update = 0;
  std::uint32_t layer = 0;
};
/// out = residual + dropout(branch + bias); bias [n] storage or absent; residual, out storage
/// [rows, n]; row_keys [rows] int64 (unread where p = 0). out may be residual's or branch's memory.
struct BiasDropoutAdd {
  Tensor branch, bias, residual, out, row_keys;
  Dropout dropout;
};
/// d_in = d_out * mask / (1 - p).
struct DropoutBackward {
  Tensor d_out, d_in, row_keys;
  Dropout dropout;
};

/// out [n] main (+)= sum over rows of x [rows, n] storage, in a fixed order for a thread count.
struct ColumnSum {
  Tensor x, out;
  Write write = Write::kOverwrite;
};

/// out (float64, [1]) (+)= sum of x^2 in double; x is any contiguous floating tensor.
struct SumOfSquares {
  Tensor x, out;
  Write write = Write::kOverwrite;
};

/// AdamW (Loshchilov & Hutter 2019, decoupled decay): with g = grad * grad_scale,
/// m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2, master -= lr * (m^/(sqrt(v^) + eps) + decay *
/// master) where m^ = m / (1 - b1^update), v^ = v / (1 - b2^update). All flat, main type; `weight`
/// (storage) receives the rounded master, and is absent where the master is itself the stored
/// weight.
struct AdamW {
  Tensor master, m, v, grad, weight;
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, grad_scale = 1;
  std::int64_t update = 1;
};
/// SGD with momentum (PyTorch's form): buffer = momentum * buffer + g (g at the first update),
/// master -= lr * (buffer + decay * master): the decay is decoupled, as in AdamW.
struct Sgd {
  Tensor master, buffer, grad, weight;
  double lr = 0, momentum = 0, weight_decay = 0, grad_scale = 1;
  std::int64_t update = 1;
};

/// Every output = the element-wise reduction of the inputs, in the order given, in the sum type of
/// their element type (fp32 for bf16 and fp32, double for double, int64 for integers), rounded
/// once. All contiguous, same dtype and count; an output may be one of the inputs.
struct ReduceRanks {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  ReduceOp op = ReduceOp::kSum;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  /// One line for the start-up table: "cpu: AMD EPYC, oneDNN 2.6.3 (avx2), 1 thread".
  virtual std::string describe() const = 0;

  /// 64-byte aligned, zero-filled memory; throws InternalError with the size if there is none.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory) noexcept = 0;
  /// Whether the host may touch what allocate() gives. Where it may not, values reach it by copy().
  virtual bool host_memory() const { return true; }
  /// Bytes that allocate() can still give, where the memory is not the host's.
  virtual std::size_t free_memory() const { return std::numeric_limits<std::size_t>::max(); }
  /// Memory of the host that copy() reaches at full speed (pinned, where that means anything).
  virtual void* allocate_staging(std::size_t bytes);
  virtual void deallocate_staging(void* memory) noexcept;
  virtual std::unique_ptr<Stream> make_stream(const std::string& name) = 0;
  /// A stream whose work goes before that of make_stream's where both are ready.
  virtual std::unique_ptr<Stream> make_communication_stream(const std::string& name) {
    return make_stream(name);
  }
  virtual std::unique_ptr<Event> make_event() = 0;

  /// Same dtype and shape; rank-2 tensors may have strided rows; either side may be host memory,
  /// which must hold its values when this is called and stay until the stream has passed.
  virtual void copy(Stream& stream, const Tensor& from, const Tensor& to) = 0;
  /// Contiguous floating tensors of any two types, rounded to nearest even.
  virtual void cast(Stream& stream, const Tensor& from, const Tensor& to) = 0;
  virtual void fill_zero(Stream& stream, const Tensor& tensor) = 0;

  virtual void gemm(Stream& stream, const Gemm& args) = 0;
  /// These two return whether the activation was part of the product's kernel. If not, which is
  /// what they do by default, they made the product alone, and the caller's activation_forward (of
  /// gemm.c to out) or activation_backward (of gemm.c to d_pre) is to follow.
  [[nodiscard]] virtual bool gemm_activation(Stream& stream, const GemmActivation& args);
  [[nodiscard]] virtual bool gemm_activation_backward(Stream& stream,
                                                      const GemmActivationBackward& args);
  virtual void gemm_bias_gradient(Stream& stream, const GemmBiasGradient& args);
  virtual void activation_forward(Stream& stream, const ActivationForward& args) = 0;
  virtual void activation_backward(Stream& stream, const ActivationBackward& args) = 0;
  virtual void norm_forward(Stream& stream, const NormForward& args) = 0;
  virtual void norm_backward(Stream& stream, const NormBackward& args) = 0;
  virtual void embedding_forward(Stream& stream, const EmbeddingForward& args) = 0;
  virtual void embedding_backward(Stream& stream, const EmbeddingBackward& args) = 0;
  virtual void cross_entropy_max(Stream& stream, const CrossEntropyMax& args) = 0;
  virtual void cross_entropy_sums(Stream& stream, const CrossEntropySums& args) = 0;
  virtual void cross_entropy_backward(Stream& stream, const CrossEntropyBackward& args) = 0;
  virtual void mean_squared_error(Stream& stream, const MeanSquaredError& args) = 0;
  virtual void bias_dropout_add(Stream& stream, const BiasDropoutAdd& args) = 0;
  virtual void dropout_backward(Stream& stream, const DropoutBackward& args) = 0;
  virtual void column_sum(Stream& stream, const ColumnSum& args) = 0;
  virtual void sum_of_squares(Stream& stream, const SumOfSquares& args) = 0;
  virtual void adamw(Stream& stream, const AdamW& args) = 0;
  virtual void sgd(Stream& stream, const Sgd& args) = 0;
  virtual void reduce_ranks(Stream& stream, const ReduceRanks& args) = 0;
};

/// The readable definition of every kernel: plain loops in double.
std::unique_ptr<Device> make_reference_device(int threads);
/// oneDNN and Highway on this process's CPUs; `threads` OpenMP threads inside each kernel.
std::unique_ptr<Device> make_cpu_device(int threads);

}  // namespace tandem
