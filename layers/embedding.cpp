#include "layers/embedding.h"

namespace tandem {

ContextEmbedding::ContextEmbedding(ParameterStore& store, const Options& options)
    : options_(options),
      weight_(&store.add({.name = options.name + ".weight",
                          .shape = {options.context, options.vocab, options.hidden},
                          .cut_dimension = 1,
                          .init_std = 0.02,
                          .block = options.name})),
      region_(options.name, options.sequence_parallel) {}

ContextEmbedding::Context ContextEmbedding::make_context(Arena& arena, const Precision& precision,
                                                         std::int64_t max_rows,
                                                         std::int64_t shard_rows) const {
  Context context;
  context.partial = arena.allocate(MemoryCategory::kActivations, options_.name + " output",
                                   precision.storage, {max_rows, options_.hidden});
  if (options_.sequence_parallel) {
    context.scattered = arena.allocate(MemoryCategory::kActivations, options_.name + " shard",
                                       precision.storage, {shard_rows, options_.hidden});
    context.gathered =
        arena.allocate(MemoryCategory::kCommunication, options_.name + " gathered gradient",
                       precision.storage, {max_rows, options_.hidden});
  }
  context.workspace =
      arena.allocate(MemoryCategory::kWorkspace, options_.name + " order", DType::kI32,
                     {options_.context * (max_rows + weight_->local_shape()[1] + 1)});
  return context;
}

Tensor ContextEmbedding::forward(const Pass& pass, Context& context, const Tensor& ids) const {
  context.ids = ids;
  pass.needs(*weight_);
  const ProfileRange range(pass.rank->profiler, {options_.name, "forward", pass.rows});
  const Tensor partial = context.partial.first(pass.rows);
  pass.device().embedding_forward(
      pass.compute(),
      {.ids = ids, .table = weight_->weight, .y = partial, .vocab_start = weight_->cut_start()});
  const auto left = region_.leave(
      pass, partial,
      context.scattered.absent() ? Tensor() : context.scattered.first(region_.shard_rows(pass)));
  left.work.wait(pass.compute());
  return left.tensor;
}

void ContextEmbedding::backward(const Pass& pass, Context& context, const Tensor& gradient) const {
  const ProfileRange range(pass.rank->profiler, {options_.name, "backward", pass.rows});
  const auto d_partial = region_.leave_backward(
      pass, gradient, context.gathered.absent() ? Tensor() : context.gathered.first(pass.rows));
  d_partial.work.wait(pass.compute());
  const std::int64_t vocab = weight_->local_shape()[1];
  const Shape order = {options_.context, pass.rows + vocab + 1};
  pass.device().embedding_backward(
      pass.compute(), {.ids = context.ids,
                       .d_y = d_partial.tensor,
                       .d_table = weight_->main_grad,
                       .workspace = context.workspace.first(order.numel()).reshape(order),
                       .vocab_start = weight_->cut_start(),
                       .write = pass.write});
  pass.ready(*weight_);
}

}  // namespace tandem
