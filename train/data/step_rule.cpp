#include "train/data/step_rule.h"

#include <algorithm>

namespace tandem {
namespace {

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

SampleRange micro_batch_positions(const TrainConfig& train, const Layout& layout,
                                  std::int64_t consumed, std::int64_t micro) {
  return {
      consumed + layout.dp_rank() * (train.global_batch / layout.dp) + micro * train.micro_batch,
      train.micro_batch};
}

std::int64_t evaluation_batches_per_rank(const TrainConfig& train, const Layout& layout,
                                         std::int64_t samples) {
  return ceil_divide(ceil_divide(samples, train.micro_batch), layout.dp);
}

SampleRange evaluation_samples(const TrainConfig& train, const Layout& layout, std::int64_t samples,
                               std::int64_t index) {
  const std::int64_t batch =
      layout.dp_rank() * evaluation_batches_per_rank(train, layout, samples) + index;
  const std::int64_t first = std::min(samples, batch * train.micro_batch);
  return {first, std::min(train.micro_batch, samples - first)};
}

}  // namespace tandem
