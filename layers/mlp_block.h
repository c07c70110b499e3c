// The transformer's feed-forward block with its residual: x + dropout(fc2(act(fc1(norm(x)))) + b2).
// fc1 is column parallel and fc2 row parallel, so that the activation needs no communication and
// the block one collective each way (Shoeybi et al. 2019).
#pragma once

#include <cstdint>
#include <string>

#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/tokens.h"

namespace tandem {

/// The dimensions that size a block's buffers.
struct BlockShape {
  std::int64_t max_rows = 0;    ///< rows of the fullest micro-batch
  std::int64_t shard_rows = 0;  ///< max_rows / tp with sequence parallelism, else max_rows
  std::int64_t hidden = 0;
  std::int64_t local_ffn = 0;  ///< ffn / tp
  bool sequence_parallel = false;
  bool dropout = false;
};

/// Buffers that all blocks (and the head) share, since only one of them is at work at a time.
struct BlockScratch {
  Tensor partial;     ///< [max_rows, hidden]: partial sums, before g and before f's backward
  Tensor d_act;       ///< [max_rows, ffn / tp]
  Tensor d_branch;    ///< [shard_rows, hidden]: gradient behind dropout; absent without dropout
  Tensor gathered;    ///< [max_rows, hidden]: all tokens of fc1's input; sequence parallel only
  Tensor d_gathered;  ///< [max_rows, hidden]: all tokens of d_branch; sequence parallel only
  Tensor scattered;   ///< [shard_rows, hidden]: this rank's tokens; sequence parallel only

  BlockScratch() = default;
  BlockScratch(Arena& arena, const Precision& precision, const BlockShape& shape);
};

class MlpBlock {
 public:
  struct Options {
    std::string name;  ///< "layers.3"
    std::uint32_t index = 0;
    std::int64_t hidden = 0;
    std::int64_t ffn = 0;  ///< width behind the activation (swiglu: the gated width)
    Activation activation = Activation::kGelu;
    NormKind norm = NormKind::kLayerNorm;
    double norm_eps = 1e-5;
    bool bias = true;
    bool sequence_parallel = false;
    double fc2_init_std = 0.02;
  };
  /// What forward saves for backward.
  struct Context {
    Norm::Context norm;
    ColumnParallelLinear::Context fc1;
    RowParallelLinear::Context fc2;
    Tensor normed;     ///< [shard_rows, hidden]
    Tensor pre;        ///< [max_rows, parts * ffn / tp]; swiglu's backward overwrites it
    Tensor activated;  ///< [max_rows, ffn / tp]
    Tensor out;        ///< [shard_rows, hidden]
  };

  MlpBlock(ParameterStore& store, const Options& options);
  Context make_context(Arena& arena, const Precision& precision, const BlockShape& shape) const;

  /// x [shard rows, hidden], which must live until backward -> the block's output, in the context.
  Tensor forward(const Pass& pass, Context& context, const BlockScratch& scratch,
                 const Tensor& x) const;
  /// In place: `gradient` [shard rows, hidden] enters as dL/d(output), leaves as dL/dx. Starts f's
  /// all-reduce before the two weight-gradient matmuls and waits for it behind them.
  void backward(const Pass& pass, Context& context, const BlockScratch& scratch,
                const Tensor& gradient) const;

 private:
  Dropout dropout(const Pass& pass) const;

  Options options_;
  Norm norm_;
  ColumnParallelLinear fc1_;
  RowParallelLinear fc2_;
  TokenRegion region_;
  std::string forward_range_, backward_range_;
};

}  // namespace tandem
