// Layer norm (Ba et al. 2016) and RMS norm (Zhang & Sennrich 2019) over the hidden dimension.
// Weights are replicated over the tensor-parallel group. Rows are normalised one by one, so unlike
// batch statistics nothing depends on how rows are spread over ranks.
#pragma once

#include <cstdint>
#include <string>

#include "core/arena.h"
#include "layers/pass.h"
#include "parallel/parameter_store.h"

namespace tandem {

class Norm {
 public:
  struct Options {
    std::string name;
    NormKind kind = NormKind::kLayerNorm;
    std::int64_t hidden = 0;
    double eps = 1e-5;
    /// Rows are token shards (sequence parallelism): weight gradients are partial sums.
    bool partial_gradient = false;
  };
  struct Context {
    Tensor mean, rstd;  ///< [max_rows] sum type; mean absent for RMS norm
    Tensor input;       ///< [rows, hidden], as given to forward
  };

  Norm(ParameterStore& store, const Options& options);
  Context make_context(Arena& arena, const Precision& precision, std::int64_t max_rows) const;

  /// y [rows, hidden] = norm(x [rows, hidden]).
  void forward(const Pass& pass, Context& context, const Tensor& x, const Tensor& y) const;
  /// d_x = residual + the gradient through the norm (d_x may be residual's memory), and the main
  /// gradients of weight and bias.
  void backward(const Pass& pass, const Context& context, const Tensor& d_y, const Tensor& residual,
                const Tensor& d_x) const;

 private:
  Options options_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace tandem
