#include "layers/lm_head.h"

namespace tandem {

LmHead::LmHead(ParameterStore& store, const Options& options)
    : norm_(store, {.name = "norm",
                    .kind = options.norm,
                    .hidden = options.hidden,
                    .eps = options.norm_eps,
                    .partial_gradient = options.sequence_parallel}),
      head_(store, {.name = "head",
                    .block = "head",
                    .in = options.hidden,
                    .out = options.vocab,
                    .bias = false}),
      region_("head", options.sequence_parallel) {}

LmHead::Context LmHead::make_context(Arena& arena, const Precision& precision,
                                     const BlockShape& shape) const {
  Context context;
  context.norm = norm_.make_context(arena, precision, shape.shard_rows);
  context.loss = VocabParallelCrossEntropy::make_context(arena, precision, shape.max_rows);
  context.normed = arena.allocate(MemoryCategory::kActivations, "final normed", precision.storage,
                                  {shape.shard_rows, shape.hidden});
  context.logits = arena.allocate(MemoryCategory::kActivations, "logits", precision.storage,
                                  {shape.max_rows, head_.local_out()});
  return context;
}

void LmHead::forward(const Pass& pass, Context& context, const BlockScratch& scratch,
                     const Tensor& x, const Tensor& targets, double scale,
                     const Tensor& loss_sum) const {
  const ProfileRange range(pass.rank->profiler, "head forward");
  const Tensor normed = context.normed.first(region_.shard_rows(pass));
  pass.in_range("norm", [&] { norm_.forward(pass, context.norm, x, normed); });
  const auto entered = region_.enter(
      pass, normed, scratch.gathered.absent() ? Tensor() : scratch.gathered.first(pass.rows));
  entered.work.wait(pass.compute());
  const Tensor logits = context.logits.first(pass.rows);
  pass.in_range("head gemm", [&] { head_.forward(pass, context.head, entered.tensor, logits); });
  pass.in_range("cross-entropy", [&] {
    VocabParallelCrossEntropy::apply(pass, context.loss,
                                     {.logits = logits,
                                      .targets = targets,
                                      .vocab_start = head_.weight().cut_start(),
                                      .valid_columns = head_.weight().cut_valid(),
                                      .scale = scale,
                                      .d_logits = scale == 0.0 ? Tensor() : logits,
                                      .loss_sum = loss_sum});
  });
}

void LmHead::backward(const Pass& pass, Context& context, const BlockScratch& scratch,
                      const Tensor& gradient) const {
  const ProfileRange range(pass.rank->profiler, "head backward");
  const std::int64_t shard = region_.shard_rows(pass);
  const Tensor d_logits = context.logits.first(pass.rows);
  const Tensor d_normed_partial = scratch.partial.first(pass.rows);
  pass.in_range("head dgrad", [&] { head_.backward_input(pass, d_logits, d_normed_partial); });
  const auto d_entered = region_.enter_backward(
      pass, d_normed_partial,
      scratch.scattered.absent() ? Tensor() : scratch.scattered.first(shard));
  // No block has run since this micro-batch's forward, so the gathered tokens are still there.
  pass.in_range("head wgrad", [&] { head_.backward_weight(pass, context.head, d_logits); });
  d_entered.work.wait(pass.compute());
  pass.in_range("norm backward",
                [&] { norm_.backward(pass, context.norm, d_entered.tensor, Tensor(), gradient); });
}

}  // namespace tandem
