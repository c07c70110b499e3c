#include "layers/norm.h"

namespace tandem {

Norm::Norm(ParameterStore& store, const Options& options)
    : options_(options),
      weight_(&store.add({.name = options.name + ".weight",
                          .shape = {options.hidden},
                          .init_value = 1.0,
                          .partial_gradient = options.partial_gradient})) {
  if (options.kind == NormKind::kLayerNorm) {
    bias_ = &store.add({.name = options.name + ".bias",
                        .shape = {options.hidden},
                        .partial_gradient = options.partial_gradient});
  }
}

Norm::Context Norm::make_context(Arena& arena, const Precision& precision,
                                 std::int64_t max_rows) const {
  Context context;
  const auto statistic = [&](const char* what) {
    return arena.allocate(MemoryCategory::kActivations, options_.name + what, precision.sum,
                          {max_rows});
  };
  if (options_.kind == NormKind::kLayerNorm) {
    context.mean = statistic(" mean");
  }
  context.rstd = statistic(" rstd");
  return context;
}

void Norm::forward(const Pass& pass, Context& context, const Tensor& x, const Tensor& y) const {
  context.input = x;
  pass.needs(*weight_);
  if (bias_ != nullptr) {
    pass.needs(*bias_);
  }
  pass.device().norm_forward(
      pass.compute(), {.kind = options_.kind,
                       .eps = options_.eps,
                       .x = x,
                       .weight = weight_->weight,
                       .bias = bias_ == nullptr ? Tensor() : bias_->weight,
                       .y = y,
                       .mean = context.mean.absent() ? Tensor() : context.mean.first(x.dim(0)),
                       .rstd = context.rstd.first(x.dim(0))});
}

void Norm::backward(const Pass& pass, const Context& context, const Tensor& d_y,
                    const Tensor& residual, const Tensor& d_x) const {
  const std::int64_t rows = d_y.dim(0);
  pass.device().norm_backward(pass.compute(),
                              {.kind = options_.kind,
                               .d_y = d_y,
                               .x = context.input,
                               .weight = weight_->weight,
                               .mean = context.mean.absent() ? Tensor() : context.mean.first(rows),
                               .rstd = context.rstd.first(rows),
                               .residual = residual,
                               .d_x = d_x,
                               .d_weight = weight_->main_grad,
                               .d_bias = bias_ == nullptr ? Tensor() : bias_->main_grad,
                               .write = pass.write});
  pass.ready(*weight_);
  if (bias_ != nullptr) {
    pass.ready(*bias_);
  }
}

}  // namespace tandem
