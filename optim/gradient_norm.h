// The norm of the whole model's gradient, and the factor that clips it. Each value counts once:
// cut parameters on every rank of the tensor-parallel group, replicated ones on its first.
#pragma once

#include "core/device.h"
#include "parallel/parameter_store.h"
#include "parallel/rank_context.h"

namespace tandem {

/// Queues the sum of squares, in double, of the gradient values that this rank owns: over the ranks
/// of one tensor-parallel group, and under ZeRO over all ranks, these add up to the squared norm.
/// out: float64 [1] on the device.
void owned_sum_of_squares(const RankContext& rank, const ParameterStore& store, const Tensor& out);

/// min(1, max_norm / (norm + 1e-6)); 1 where max_norm is 0 (clipping off). As PyTorch's
/// clip_grad_norm_.
double clip_factor(double norm, double max_norm);

}  // namespace tandem
