#include "layers/cross_entropy.h"

namespace tandem {

VocabParallelCrossEntropy::Context VocabParallelCrossEntropy::make_context(
    Arena& arena, const Precision& precision, std::int64_t max_rows) {
  return {.row_max = arena.allocate(MemoryCategory::kActivations, "loss row maxima", precision.sum,
                                    {max_rows}),
          .sums = arena.allocate(MemoryCategory::kActivations, "loss row sums", precision.sum,
                                 {max_rows, 2})};
}

void VocabParallelCrossEntropy::apply(const Pass& pass, const Context& context,
                                      const Arguments& arguments) {
  Communicator& tp = *pass.rank->tensor_parallel;
  Stream& compute = pass.compute();
  const Tensor row_max = context.row_max.first(pass.rows);
  const Tensor sums = context.sums.first(pass.rows);
  pass.device().cross_entropy_max(
      compute,
      {.logits = arguments.logits, .row_max = row_max, .valid_columns = arguments.valid_columns});
  tp.all_reduce(row_max, {.after = &compute, .op = ReduceOp::kMax, .label = "loss row maxima"})
      .wait(compute);
  pass.device().cross_entropy_sums(compute, {.logits = arguments.logits,
                                             .targets = arguments.targets,
                                             .row_max = row_max,
                                             .sums = sums,
                                             .vocab_start = arguments.vocab_start,
                                             .valid_columns = arguments.valid_columns});
  tp.all_reduce(sums, {.after = &compute, .label = "loss row sums"}).wait(compute);
  pass.device().cross_entropy_backward(compute, {.logits = arguments.logits,
                                                 .targets = arguments.targets,
                                                 .row_max = row_max,
                                                 .sums = sums,
                                                 .d_logits = arguments.d_logits,
                                                 .loss_sum = arguments.loss_sum,
                                                 .vocab_start = arguments.vocab_start,
                                                 .valid_columns = arguments.valid_columns,
                                                 .scale = arguments.scale});
}

}  // namespace tandem
