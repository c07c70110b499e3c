#include "optim/gradient_norm.h"

#include <algorithm>

namespace tandem {

void owned_sum_of_squares(const RankContext& rank, const ParameterStore& store, const Tensor& out) {
  Device& device = *rank.device;
  Stream& stream = *rank.compute;
  device.fill_zero(stream, out);
  for (const OwnedRange& owned : store.owned()) {
    if (!owned.replicated || rank.layout.tp_rank() == 0) {
      device.sum_of_squares(stream,
                            {.x = owned.range.main_grad, .out = out, .write = Write::kAccumulate});
    }
  }
}

double clip_factor(double norm, double max_norm) {
  return max_norm == 0.0 ? 1.0 : std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace tandem
