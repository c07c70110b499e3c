#include "optim/optimizer.h"

#include "parallel/parameter_store.h"

namespace tandem {

namespace {

/// What receives the rounded master; absent where the master is the stored weight.
Tensor storage_copy(const ParameterRange& range) {
  return range.weight.data == range.master.data ? Tensor() : range.weight;
}

void update_range(Device& device, Stream& stream, const ParameterRange& range,
                  const OptimizerOptions& options, double weight_decay,
                  const UpdateArguments& arguments) {
  if (options.kind == OptimizerKind::kAdamW) {
    device.adamw(stream, {.master = range.master,
                          .m = range.exp_avg,
                          .v = range.exp_avg_sq,
                          .grad = range.main_grad,
                          .weight = storage_copy(range),
                          .lr = arguments.lr,
                          .beta1 = options.betas[0],
                          .beta2 = options.betas[1],
                          .eps = options.eps,
                          .weight_decay = weight_decay,
                          .grad_scale = arguments.grad_scale,
                          .update = arguments.update});
  } else {
    device.sgd(stream, {.master = range.master,
                        .buffer = range.exp_avg,
                        .grad = range.main_grad,
                        .weight = storage_copy(range),
                        .lr = arguments.lr,
                        .momentum = options.momentum,
                        .weight_decay = weight_decay,
                        .grad_scale = arguments.grad_scale,
                        .update = arguments.update});
  }
}

}  // namespace

int optimizer_moments(const OptimizerOptions& options) {
  return options.kind == OptimizerKind::kAdamW ? 2 : 1;
}

void update_parameters(Device& device, Stream& stream, const ParameterStore& store,
                       const OptimizerOptions& options, const UpdateArguments& arguments) {
  for (const OwnedRange& owned : store.owned()) {
    const double weight_decay = owned.matrices ? options.weight_decay : 0.0;
    update_range(device, stream, owned.range, options, weight_decay, arguments);
  }
}

}  // namespace tandem
