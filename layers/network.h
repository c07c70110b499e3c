// The whole network of a config: `mlp_lm` (context embedding, blocks, head with cross-entropy) or
// `ffn` (the blocks alone with mean-squared error). Owns the layers and, through the arena, the
// buffers of one micro-batch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layers/embedding.h"
#include "layers/lm_head.h"
#include "layers/mlp_block.h"

namespace tandem {

struct NetworkOptions {
  bool language_model = true;
  std::int64_t vocab = 0;    ///< language model only
  std::int64_t context = 0;  ///< language model only
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;
  std::int64_t layers = 0;
  Activation activation = Activation::kGelu;
  NormKind norm = NormKind::kLayerNorm;
  double norm_eps = 1e-5;
  bool bias = true;
  bool dropout = false;  ///< any dropout at all; sizes buffers
  bool sequence_parallel = false;
  std::int64_t max_rows = 0;  ///< rows of the fullest micro-batch, a multiple of tp
};

/// A micro-batch on the device; what the options' kind does not need is absent.
struct NetworkInput {
  Tensor ids;               ///< [rows, context] int32
  Tensor targets;           ///< [rows] int32
  Tensor input;             ///< [rows, hidden]
  Tensor expected;          ///< [rows, hidden]
  std::int64_t tokens = 0;  ///< rows that count; they come first
};

class Network {
 public:
  /// Adds the parameters to `store`. Buffers come later, from allocate().
  Network(ParameterStore& store, const NetworkOptions& options);
  void allocate(Arena& arena, const Precision& precision, const Layout& layout);

  /// Adds the micro-batch's token losses to loss_sum (float64 [1] on the device): with sequence
  /// parallelism and `ffn` only this rank's tokens', otherwise those of all rows on every rank.
  /// `scale` = dL/d(loss of a token), 0 in evaluation: then no backward may follow.
  void forward(const Pass& pass, const NetworkInput& input, double scale, const Tensor& loss_sum);
  void backward(const Pass& pass);

  /// Whether loss_sum is a partial sum over the tensor-parallel group.
  bool loss_is_partial() const { return !options_.language_model && options_.sequence_parallel; }
  /// Elements of all weights that take part in matmuls, over all ranks: model FLOPs are
  /// 6 * matmul_parameters per token.
  std::int64_t matmul_parameters() const;

 private:
  void mean_squared_error(const Pass& pass, const Tensor& y, const NetworkInput& input,
                          double scale, const Tensor& loss_sum);

  NetworkOptions options_;
  std::optional<ContextEmbedding> embedding_;
  std::vector<MlpBlock> blocks_;
  std::optional<LmHead> head_;
  TokenRegion region_;

  ContextEmbedding::Context embedding_context_;
  std::vector<MlpBlock::Context> block_contexts_;
  LmHead::Context head_context_;
  BlockScratch scratch_;
  Tensor gradient_;  ///< [shard_rows, hidden]: dL/d(residual stream), passed down the blocks
};

}  // namespace tandem
