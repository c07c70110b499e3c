// The two cuts of a linear layer y = x W^T + b, W [out, in] as PyTorch stores it. Column parallel
// cuts W's rows (dimension 0, the columns of W^T: Megatron-LM's name; some texts call it row
// sharding of W): each rank makes its columns of y from the whole x. Row parallel cuts dimension 1:
// each rank makes a partial sum of all of y from its columns of x. Linear layers hold no operator:
// the block around them owns f and g, so no backward_input hides a collective.
//
// With dy = dL/dy: dx = dy W, dW = dy^T x, db = sum over rows of dy.
#pragma once

#include <cstdint>
#include <string>

#include "core/arena.h"
#include "layers/pass.h"
#include "parallel/parameter_store.h"

namespace tandem {

struct LinearOptions {
  std::string name;   ///< parameters are name.weight and name.bias
  std::string block;  ///< gradient bucket
  std::int64_t in = 0;
  std::int64_t out = 0;
  int parts = 1;  ///< fused parts of the output (column parallel only)
  bool bias = true;
  double init_std = 0.02;
};

class ColumnParallelLinear {
 public:
  struct Context {
    Tensor input;  ///< [rows, in], as given to forward
  };

  ColumnParallelLinear(ParameterStore& store, const LinearOptions& options);

  /// y [rows, out / tp] = x [rows, in] W^T + b.
  void forward(const Pass& pass, Context& context, const Tensor& x, const Tensor& y) const;
  /// y, and activated [rows, ...] = f(y) in the same kernel where the device has one. Returns
  /// whether it has; if not, `activated` is the caller's to make.
  [[nodiscard]] bool forward(const Pass& pass, Context& context, const Tensor& x, const Tensor& y,
                             Activation kind, const Tensor& activated) const;
  /// d_x [rows, in] = d_y W: this rank's partial sum, which f's backward adds up.
  void backward_input(const Pass& pass, const Tensor& d_y, const Tensor& d_x) const;
  /// Main gradients of W and b from d_y [rows, out / tp] and the saved input.
  void backward_weight(const Pass& pass, const Context& context, const Tensor& d_y) const;

  const Parameter& weight() const { return *weight_; }
  std::int64_t local_out() const { return weight_->local_shape()[0]; }

 private:
  Gemm product(const Pass& pass, const Tensor& x, const Tensor& y) const;

  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

class RowParallelLinear {
 public:
  struct Context {
    Tensor input;  ///< [rows, in / tp]
  };

  /// `partial_bias_gradient`: the bias meets token shards (sequence parallelism).
  RowParallelLinear(ParameterStore& store, const LinearOptions& options,
                    bool partial_bias_gradient);

  /// y [rows, out] = x [rows, in / tp] W^T: a partial sum, to be reduced by g. The bias is not in
  /// it: it is added once, after the reduction, by whoever calls g.
  void forward(const Pass& pass, Context& context, const Tensor& x, const Tensor& y) const;
  /// d_x [rows, in / tp] = d_y [rows, out] W.
  void backward_input(const Pass& pass, const Tensor& d_y, const Tensor& d_x) const;
  /// The activation that made x from `pre`, and its gradient.
  struct Activated {
    Activation kind = Activation::kGelu;
    Tensor pre;    ///< [rows, in / tp], twice as wide for swiglu
    Tensor d_pre;  ///< may be d_x's memory (but for swiglu) or pre's
  };
  /// d_pre = f'(pre) d_x in the same kernel where the device has one, which then leaves d_x as it
  /// was. Returns whether it has; if not, d_x is there and d_pre is the caller's to make.
  [[nodiscard]] bool backward_input(const Pass& pass, const Tensor& d_y, const Tensor& d_x,
                                    const Activated& activated) const;
  void backward_weight(const Pass& pass, const Context& context, const Tensor& d_y) const;
  /// Main gradient of the bias from the gradient of what it was added to; nothing without a bias.
  void backward_bias(const Pass& pass, const Tensor& d_y) const;

  const Parameter& weight() const { return *weight_; }
  /// [out] storage; absent without a bias.
  Tensor bias() const { return bias_ == nullptr ? Tensor() : bias_->weight; }

 private:
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace tandem
