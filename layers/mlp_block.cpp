#include "layers/mlp_block.h"

namespace tandem {

BlockScratch::BlockScratch(Arena& arena, const Precision& precision, const BlockShape& shape) {
  const auto scratch = [&](const char* name, std::int64_t rows, std::int64_t columns,
                           MemoryCategory category = MemoryCategory::kWorkspace) {
    return arena.allocate(category, name, precision.storage, {rows, columns});
  };
  partial = scratch("partial sums", shape.max_rows, shape.hidden);
  d_act = scratch("activation gradient", shape.max_rows, shape.local_ffn);
  if (shape.dropout) {
    d_branch = scratch("gradient behind dropout", shape.shard_rows, shape.hidden);
  }
  if (shape.sequence_parallel) {
    gathered =
        scratch("gathered tokens", shape.max_rows, shape.hidden, MemoryCategory::kCommunication);
    d_gathered =
        scratch("gathered gradients", shape.max_rows, shape.hidden, MemoryCategory::kCommunication);
    scattered =
        scratch("scattered sums", shape.shard_rows, shape.hidden, MemoryCategory::kCommunication);
  }
}

MlpBlock::MlpBlock(ParameterStore& store, const Options& options)
    : options_(options),
      norm_(store, {.name = options.name + ".norm",
                    .kind = options.norm,
                    .hidden = options.hidden,
                    .eps = options.norm_eps,
                    .partial_gradient = options.sequence_parallel}),
      fc1_(store, {.name = options.name + ".fc1",
                   .block = options.name,
                   .in = options.hidden,
                   .out = options.activation == Activation::kSwiglu ? 2 * options.ffn : options.ffn,
                   .parts = options.activation == Activation::kSwiglu ? 2 : 1,
                   .bias = options.bias}),
      fc2_(store,
           {.name = options.name + ".fc2",
            .block = options.name,
            .in = options.ffn,
            .out = options.hidden,
            .bias = options.bias,
            .init_std = options.fc2_init_std},
           options.sequence_parallel),
      region_(options.name, options.sequence_parallel),
      forward_range_(options.name + " forward"),
      backward_range_(options.name + " backward") {}

MlpBlock::Context MlpBlock::make_context(Arena& arena, const Precision& precision,
                                         const BlockShape& shape) const {
  const auto saved = [&](const char* what, std::int64_t rows, std::int64_t columns) {
    return arena.allocate(MemoryCategory::kActivations, options_.name + what, precision.storage,
                          {rows, columns});
  };
  Context context;
  context.norm = norm_.make_context(arena, precision, shape.shard_rows);
  context.normed = saved(" normed", shape.shard_rows, shape.hidden);
  context.pre = saved(" pre-activation", shape.max_rows, fc1_.local_out());
  context.activated = saved(" activated", shape.max_rows, shape.local_ffn);
  context.out = saved(" output", shape.shard_rows, shape.hidden);
  return context;
}

Dropout MlpBlock::dropout(const Pass& pass) const {
  Dropout dropout = pass.dropout;
  dropout.layer = options_.index;
  return dropout;
}

Tensor MlpBlock::forward(const Pass& pass, Context& context, const BlockScratch& scratch,
                         const Tensor& x) const {
  const ProfileRange range(pass.rank->profiler, forward_range_);
  const std::int64_t shard = region_.shard_rows(pass);
  const Tensor normed = context.normed.first(shard);
  pass.in_range("norm", [&] { norm_.forward(pass, context.norm, x, normed); });
  const auto entered = region_.enter(
      pass, normed, scratch.gathered.absent() ? Tensor() : scratch.gathered.first(pass.rows));
  entered.work.wait(pass.compute());

  const Tensor pre = context.pre.first(pass.rows);
  const Tensor activated = context.activated.first(pass.rows);
  const bool fused = pass.in_range("fc1 gemm", [&] {
    return fc1_.forward(pass, context.fc1, entered.tensor, pre, options_.activation, activated);
  });
  if (!fused) {
    pass.in_range("activation", [&] {
      pass.device().activation_forward(pass.compute(),
                                       {.kind = options_.activation, .pre = pre, .out = activated});
    });
  }
  const Tensor partial = scratch.partial.first(pass.rows);
  pass.in_range("fc2 gemm", [&] { fc2_.forward(pass, context.fc2, activated, partial); });

  const auto left = region_.leave(
      pass, partial, scratch.scattered.absent() ? Tensor() : scratch.scattered.first(shard));
  left.work.wait(pass.compute());
  const Tensor out = context.out.first(shard);
  pass.in_range("bias, dropout, residual", [&] {
    pass.device().bias_dropout_add(pass.compute(),
                                   {.branch = left.tensor,
                                    .bias = fc2_.bias(),
                                    .residual = x,
                                    .out = out,
                                    .row_keys = region_.shard_of(pass, pass.row_keys),
                                    .dropout = dropout(pass)});
  });
  return out;
}

void MlpBlock::backward(const Pass& pass, Context& context, const BlockScratch& scratch,
                        const Tensor& gradient) const {
  const ProfileRange range(pass.rank->profiler, backward_range_);
  const std::int64_t shard = region_.shard_rows(pass);
  const auto rows = [&](const Tensor& t) { return t.absent() ? t : t.first(pass.rows); };

  Tensor d_branch = gradient;
  if (pass.dropout.p > 0.0) {
    d_branch = scratch.d_branch.first(shard);
    pass.in_range("dropout backward", [&] {
      pass.device().dropout_backward(pass.compute(),
                                     {.d_out = gradient,
                                      .d_in = d_branch,
                                      .row_keys = region_.shard_of(pass, pass.row_keys),
                                      .dropout = dropout(pass)});
    });
  }
  const auto d_left = region_.leave_backward(pass, d_branch, rows(scratch.d_gathered));
  // fc1's input is gathered a second time rather than kept; it is needed only by the weight
  // gradient, so the gather runs under the input-gradient matmuls.
  const auto entered = region_.enter(pass, context.normed.first(shard), rows(scratch.gathered));
  d_left.work.wait(pass.compute());

  const Tensor d_activated = scratch.d_act.first(pass.rows);
  // The gradient of `pre` takes the place of the activation's; swiglu's, which is wider, of `pre`.
  const Tensor pre = context.pre.first(pass.rows);
  const Tensor d_pre = options_.activation == Activation::kSwiglu ? pre : d_activated;
  const bool fused = pass.in_range("fc2 dgrad", [&] {
    return fc2_.backward_input(pass, d_left.tensor, d_activated,
                               {.kind = options_.activation, .pre = pre, .d_pre = d_pre});
  });
  if (!fused) {
    pass.in_range("activation backward", [&] {
      pass.device().activation_backward(
          pass.compute(),
          {.kind = options_.activation, .pre = pre, .d_out = d_activated, .d_pre = d_pre});
    });
  }
  const Tensor d_normed_partial = scratch.partial.first(pass.rows);
  pass.in_range("fc1 dgrad", [&] { fc1_.backward_input(pass, d_pre, d_normed_partial); });
  const auto d_entered = region_.enter_backward(
      pass, d_normed_partial,
      scratch.scattered.absent() ? Tensor() : scratch.scattered.first(shard));

  pass.in_range("fc2 wgrad", [&] {
    fc2_.backward_weight(pass, context.fc2, d_left.tensor);
    fc2_.backward_bias(pass, d_branch);
  });
  entered.work.wait(pass.compute());
  context.fc1.input = entered.tensor;
  pass.in_range("fc1 wgrad", [&] { fc1_.backward_weight(pass, context.fc1, d_pre); });

  d_entered.work.wait(pass.compute());
  pass.in_range("norm backward",
                [&] { norm_.backward(pass, context.norm, d_entered.tensor, gradient, gradient); });
}

}  // namespace tandem
