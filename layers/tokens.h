// How rows cross between the token-sharded and the whole view around a pair of matmuls cut over the
// tensor-parallel group. Without sequence parallelism every rank holds all rows, and the pair is
// Megatron-LM's f (in front of the column-parallel layer) and g (behind the row-parallel one). With
// it each rank holds rows / tp of them outside the pair: an all-gather in front, a reduce-scatter
// behind (Korthikanti et al. 2022), which moves the same bytes and shards everything in between.
#pragma once

#include <cstdint>
#include <string>

#include "layers/pass.h"
#include "parallel/operators.h"

namespace tandem {

class TokenRegion {
 public:
  /// `name` prefixes the labels of the collectives, e.g. "layers.3".
  TokenRegion(std::string name, bool sequence_parallel);

  /// Rows of the sharded view: pass.rows, or pass.rows / tp.
  std::int64_t shard_rows(const Pass& pass) const;
  /// This rank's part of [rows, ...] held whole, as a view.
  Tensor shard_of(const Pass& pass, const Tensor& whole) const;

  /// Entering: x as the sharded view holds it -> all rows. `gathered` [rows, n] is written with
  /// sequence parallelism only.
  OperatorResult enter(const Pass& pass, const Tensor& x, const Tensor& gathered) const;
  /// The adjoint: partial d_x [rows, n] -> its sum, sharded view. `scattered` [shard rows, n].
  OperatorResult enter_backward(const Pass& pass, const Tensor& d_x, const Tensor& scattered) const;
  /// Leaving: partial y [rows, n] -> its sum, sharded view.
  OperatorResult leave(const Pass& pass, const Tensor& y, const Tensor& scattered) const;
  /// The adjoint: d_y in the sharded view -> all rows.
  OperatorResult leave_backward(const Pass& pass, const Tensor& d_y, const Tensor& gathered) const;

 private:
  CollectiveOptions options(const Pass& pass, const std::string& label) const {
    return {.after = pass.rank->compute, .label = label};
  }

  bool sequence_parallel_;
  std::string enter_label_, enter_backward_label_, leave_label_, leave_backward_label_;
};

}  // namespace tandem
