// The end of the language model: final norm, the head (column parallel over the vocabulary) and the
// cross-entropy. The loss's gradient is made in the same call, in place of the logits.
#pragma once

#include <cstdint>

#include "layers/cross_entropy.h"
#include "layers/linear.h"
#include "layers/mlp_block.h"
#include "layers/norm.h"

namespace tandem {

class LmHead {
 public:
  struct Options {
    std::int64_t hidden = 0;
    std::int64_t vocab = 0;
    NormKind norm = NormKind::kLayerNorm;
    double norm_eps = 1e-5;
    bool sequence_parallel = false;
  };
  struct Context {
    Norm::Context norm;
    ColumnParallelLinear::Context head;
    VocabParallelCrossEntropy::Context loss;
    Tensor normed;  ///< [shard_rows, hidden]
    Tensor logits;  ///< [max_rows, vocab_local]
  };

  LmHead(ParameterStore& store, const Options& options);
  Context make_context(Arena& arena, const Precision& precision, const BlockShape& shape) const;

  /// x [shard rows, hidden]; targets [rows] int32. Adds the token losses to loss_sum and, unless
  /// `scale` is 0 (evaluation), leaves the gradient of the logits in the context.
  void forward(const Pass& pass, Context& context, const BlockScratch& scratch, const Tensor& x,
               const Tensor& targets, double scale, const Tensor& loss_sum) const;
  /// gradient [shard rows, hidden] = dL/dx.
  void backward(const Pass& pass, Context& context, const BlockScratch& scratch,
                const Tensor& gradient) const;

 private:
  Norm norm_;
  ColumnParallelLinear head_;
  TokenRegion region_;
};

}  // namespace tandem
