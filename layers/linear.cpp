#include "layers/linear.h"

namespace tandem {

namespace {

Gemm weight_gradient(const Pass& pass, const Parameter& weight, const Tensor& d_y,
                     const Tensor& x) {
  return {.a = d_y,
          .b = x,
          .c = weight.main_grad,
          .transpose_a = true,
          .write = pass.write,
          .beside_collective = pass.beside_collective()};
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(ParameterStore& store, const LinearOptions& options)
    : weight_(&store.add({.name = options.name + ".weight",
                          .shape = {options.out, options.in},
                          .cut_dimension = 0,
                          .parts = options.parts,
                          .init_std = options.init_std,
                          .block = options.block})) {
  if (options.bias) {
    bias_ = &store.add({.name = options.name + ".bias",
                        .shape = {options.out},
                        .cut_dimension = 0,
                        .parts = options.parts});
  }
}

Gemm ColumnParallelLinear::product(const Pass& pass, const Tensor& x, const Tensor& y) const {
  pass.needs(*weight_);
  if (bias_ != nullptr) {
    pass.needs(*bias_);
  }
  return {.a = x,
          .b = weight_->weight,
          .c = y,
          .transpose_b = true,
          .bias = bias_ == nullptr ? Tensor() : bias_->weight};
}

void ColumnParallelLinear::forward(const Pass& pass, Context& context, const Tensor& x,
                                   const Tensor& y) const {
  context.input = x;
  pass.device().gemm(pass.compute(), product(pass, x, y));
}

bool ColumnParallelLinear::forward(const Pass& pass, Context& context, const Tensor& x,
                                   const Tensor& y, Activation kind,
                                   const Tensor& activated) const {
  context.input = x;
  return pass.device().gemm_activation(
      pass.compute(), {.gemm = product(pass, x, y), .kind = kind, .out = activated});
}

void ColumnParallelLinear::backward_input(const Pass& pass, const Tensor& d_y,
                                          const Tensor& d_x) const {
  pass.device().gemm(pass.compute(), {.a = d_y, .b = weight_->weight, .c = d_x});
}

void ColumnParallelLinear::backward_weight(const Pass& pass, const Context& context,
                                           const Tensor& d_y) const {
  const Gemm gemm = weight_gradient(pass, *weight_, d_y, context.input);
  if (bias_ == nullptr) {
    pass.device().gemm(pass.compute(), gemm);
  } else {
    pass.device().gemm_bias_gradient(pass.compute(), {.gemm = gemm, .d_bias = bias_->main_grad});
  }
  pass.ready(*weight_);
  if (bias_ != nullptr) {
    pass.ready(*bias_);
  }
}

RowParallelLinear::RowParallelLinear(ParameterStore& store, const LinearOptions& options,
                                     bool partial_bias_gradient)
    : weight_(&store.add({.name = options.name + ".weight",
                          .shape = {options.out, options.in},
                          .cut_dimension = 1,
                          .init_std = options.init_std,
                          .block = options.block})) {
  if (options.bias) {
    bias_ = &store.add({.name = options.name + ".bias",
                        .shape = {options.out},
                        .partial_gradient = partial_bias_gradient});
  }
}

void RowParallelLinear::forward(const Pass& pass, Context& context, const Tensor& x,
                                const Tensor& y) const {
  context.input = x;
  pass.needs(*weight_);
  if (bias_ != nullptr) {  // read by whoever adds it, behind g
    pass.needs(*bias_);
  }
  pass.device().gemm(pass.compute(), {.a = x, .b = weight_->weight, .c = y, .transpose_b = true});
}

void RowParallelLinear::backward_input(const Pass& pass, const Tensor& d_y,
                                       const Tensor& d_x) const {
  pass.device().gemm(pass.compute(), {.a = d_y, .b = weight_->weight, .c = d_x});
}

bool RowParallelLinear::backward_input(const Pass& pass, const Tensor& d_y, const Tensor& d_x,
                                       const Activated& activated) const {
  return pass.device().gemm_activation_backward(pass.compute(),
                                                {.gemm = {.a = d_y, .b = weight_->weight, .c = d_x},
                                                 .kind = activated.kind,
                                                 .pre = activated.pre,
                                                 .d_pre = activated.d_pre});
}

void RowParallelLinear::backward_weight(const Pass& pass, const Context& context,
                                        const Tensor& d_y) const {
  pass.device().gemm(pass.compute(), weight_gradient(pass, *weight_, d_y, context.input));
  pass.ready(*weight_);
}

void RowParallelLinear::backward_bias(const Pass& pass, const Tensor& d_y) const {
  if (bias_ != nullptr) {
    pass.device().column_sum(pass.compute(),
                             {.x = d_y, .out = bias_->main_grad, .write = pass.write});
    pass.ready(*bias_);
  }
}

}  // namespace tandem
