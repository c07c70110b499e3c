#include "train/state.h"

namespace tandem {

NetworkOptions network_options(const Config& config, std::int64_t max_rows) {
  const ModelConfig& model = config.model;
  return {.language_model = model.kind == ModelKind::kMlpLm,
          .vocab = model.vocab_size,
          .context = model.context,
          .hidden = model.hidden,
          .ffn = model.ffn,
          .layers = model.layers,
          .activation = model.activation,
          .norm = model.norm,
          .norm_eps = model.norm_eps,
          .bias = model.bias,
          .dropout = model.dropout > 0.0,
          .sequence_parallel = config.parallel.sequence_parallel,
          .max_rows = max_rows};
}

OptimizerOptions optimizer_options(const Config& config) {
  const OptimConfig& optim = config.optim;
  return {.kind = optim.kind,
          .betas = optim.betas,
          .eps = optim.eps,
          .weight_decay = optim.weight_decay,
          .momentum = optim.momentum};
}

StoreOptions store_options(const Config& config, const Precision& precision) {
  StoreOptions options{.moments = optimizer_moments(optimizer_options(config)),
                       .sharded = config.parallel.zero == 1,
                       .bucket_elements = config.parallel.bucket_mb * (1 << 20) /
                                          static_cast<std::int64_t>(size_of(DType::kF32))};
  if (config.parallel.dp > 1 && precision.main == DType::kF32 &&
      config.parallel.grad_dtype == GradientType::kBf16) {
    options.wire = DType::kBF16;
  }
  return options;
}

Precision precision_of(const Config& config, DeviceKind device) {
  if (device == DeviceKind::kReference) {
    return {DType::kF64, DType::kF64, DType::kF64};
  }
  const DType storage = config.precision == PrecisionChoice::kBf16   ? DType::kBF16
                        : config.precision == PrecisionChoice::kFp16 ? DType::kF16
                                                                     : DType::kF32;
  return {storage, DType::kF32, DType::kF32};
}

Precision precision_of(const Config& config) {
  return precision_of(config, config.device == DeviceChoice::kReference ? DeviceKind::kReference
                                                                        : DeviceKind::kCpu);
}

TrainState::TrainState(const Config& config, const Layout& layout, const Precision& precision,
                       std::int64_t max_rows, Arena& arena)
    : store(layout), network(store, network_options(config, max_rows)) {
  store.allocate(arena, precision, store_options(config, precision));
  network.allocate(arena, precision, layout);
  const auto rows = [&](const char* name, DType dtype, const Shape& shape) {
    return arena.allocate(MemoryCategory::kWorkspace, name, dtype, shape);
  };
  if (config.model.kind == ModelKind::kMlpLm) {
    input.ids = rows("ids", DType::kI32, {max_rows, config.model.context});
    input.targets = rows("targets", DType::kI32, {max_rows});
  } else {
    input.input = rows("input", precision.storage, {max_rows, config.model.hidden});
    input.expected = rows("expected", precision.storage, {max_rows, config.model.hidden});
  }
  row_keys = rows("row keys", DType::kI64, {max_rows});
  scalars = rows("loss and sum of squares", DType::kF64, {2});
  loss_sum = scalars.slice(0, 0, 1);
  sum_of_squares = scalars.slice(0, 1, 1);
}

}  // namespace tandem
