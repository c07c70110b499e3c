// Softmax cross-entropy over logits whose columns are cut over the tensor-parallel group. The
// softmax is over the whole vocabulary: row maxima and sums are reduced over the group, so each
// rank ends with its columns of the one gradient, softmax - onehot. Columns that pad a vocabulary
// which does not divide take no part; ignored targets (-1) have no loss and zero gradient.
#pragma once

#include <cstdint>

#include "core/arena.h"
#include "layers/pass.h"

namespace tandem {

class VocabParallelCrossEntropy {
 public:
  struct Context {
    Tensor row_max;  ///< [max_rows]
    Tensor sums;     ///< [max_rows, 2]
  };

  static Context make_context(Arena& arena, const Precision& precision, std::int64_t max_rows);

  struct Arguments {
    Tensor logits;   ///< [rows, vocab_local]
    Tensor targets;  ///< [rows] int32, global ids
    std::int64_t vocab_start = 0;
    std::int64_t valid_columns = 0;
    /// dL/d(loss of one token): loss scale / tokens of the whole step.
    double scale = 1.0;
    Tensor d_logits;  ///< may be logits' memory; absent: loss only
    Tensor loss_sum;  ///< float64 [1], added to: the same value on every rank of the group
  };
  static void apply(const Pass& pass, const Context& context, const Arguments& arguments);
};

}  // namespace tandem
