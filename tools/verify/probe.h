// Watches the kernels of a step and keeps what lies between them: every activation and gradient of
// an activation that crosses from one operator to the next, row by row, and every weight gradient
// before its reduction. Two runs compared in this order show the first operator that went wrong.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/verify/forwarding_device.h"
#include "tools/verify/outcome.h"
#include "train/data/source.h"

namespace tandem::verify {

class Probe final : public ForwardingDevice {
 public:
  /// Keeps a row where its key's hash is a multiple of `every`; of the first step only.
  Probe(Device& inner, const Config& config, const Layout& layout, const ParameterStore& store,
        std::int64_t every);

  /// The micro-batches of the step that comes; counts only before the first step.
  void expect(std::span<const MicroBatch> batches);
  /// Collective over `rank.control`: fills in the outcome's activations, row keys, local gradients.
  void gather(RankContext& rank, Outcome& outcome) const;

  void gemm(Stream& stream, const Gemm& args) override;
  // A device's own fused kernels are under test, so they are passed on whole.
  bool gemm_activation(Stream& stream, const GemmActivation& args) override;
  bool gemm_activation_backward(Stream& stream, const GemmActivationBackward& args) override;
  void gemm_bias_gradient(Stream& stream, const GemmBiasGradient& args) override;
  void activation_forward(Stream& stream, const ActivationForward& args) override;
  void activation_backward(Stream& stream, const ActivationBackward& args) override;
  void norm_forward(Stream& stream, const NormForward& args) override;
  void norm_backward(Stream& stream, const NormBackward& args) override;
  void embedding_forward(Stream& stream, const EmbeddingForward& args) override;
  void embedding_backward(Stream& stream, const EmbeddingBackward& args) override;
  void cross_entropy_max(Stream& stream, const CrossEntropyMax& args) override;
  void cross_entropy_sums(Stream& stream, const CrossEntropySums& args) override;
  void cross_entropy_backward(Stream& stream, const CrossEntropyBackward& args) override;
  void bias_dropout_add(Stream& stream, const BiasDropoutAdd& args) override;
  void dropout_backward(Stream& stream, const DropoutBackward& args) override;
  void column_sum(Stream& stream, const ColumnSum& args) override;
  /// The loss of `ffn` models: y, the expected output, and the loss's gradient.
  void mean_squared_error(Stream& stream, const MeanSquaredError& args) override;

 private:
  /// How the rows of a kernel's tensor belong to the micro-batch's.
  enum class Rows {
    kAll,    ///< the same on every tensor-parallel rank
    kShard,  ///< this rank's tokens under sequence parallelism, else as kAll
  };
  /// How a tensor's columns belong to the whole.
  struct Columns {
    std::int64_t width = 0;  ///< of the whole
    std::int64_t parts = 1;
    std::int64_t start = 0;  ///< of this rank's columns within a part
    std::int64_t valid = 0;  ///< real columns of this rank in each part
    bool cut = false;
    bool partial = false;  ///< a summand: the whole is the sum over tensor-parallel ranks
  };
  struct Recorded {
    Columns columns;
    Rows rows = Rows::kAll;
    std::map<std::int64_t, std::vector<double>> values;  ///< by row key
  };

  /// Which micro-batch and which layer the next call of a kernel belongs to.
  struct Place {
    std::size_t batch;
    std::int64_t index;
  };
  Place next(const std::string& kernel, std::int64_t per_batch);

  void saw(Stream& stream, const Gemm& args);
  void saw_activation(Stream& stream, const Tensor& out);
  void saw_activation_gradient(Stream& stream, const Tensor& d_pre);

  Columns replicated(const Tensor& tensor) const;
  Columns partial(const Tensor& tensor) const;
  Columns units(std::int64_t parts) const;
  Columns vocabulary() const;
  void record(Stream& stream, const std::string& name, std::size_t batch, const Tensor& tensor,
              Rows rows, const Columns& columns);
  void record_gradient(Stream& stream, const Tensor& main_grad);

  Layout layout_;
  const ParameterStore* store_;
  std::int64_t layers_, fc1_parts_, ffn_, vocab_, every_;
  bool language_model_, sequence_parallel_;
  bool watching_ = false;
  bool watched_ = false;
  std::vector<std::vector<std::int64_t>> keys_;  ///< of each micro-batch's rows, -1 in padding
  std::map<std::string, std::int64_t> calls_;
  std::vector<std::string> order_;  ///< of first recording: the order of computation
  std::map<std::string, Recorded> recorded_;
  std::map<std::string, std::vector<double>> gradients_;  ///< local, by parameter
};

}  // namespace tandem::verify
