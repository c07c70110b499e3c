#include "train/run_speed.h"

#include <algorithm>
#include <array>

#include "train/roof.h"

namespace tandem {

void RunSpeed::measure_roof(Session& session) {
  RankContext& rank = session.rank();
  const DType storage = rank.precision.storage;
  std::array<double, 2> sums = {0.0, 0.0};  // roof, GPUs
  if (!rank.device->host_memory()) {
    peak_ = datasheet_tflops(rank.device->describe(), storage);
    if (session.placement().first_on_gpu) {
      sums = {device_roof(*rank.device, storage), 1.0};
    }
  } else if (session.hosts().index_here == 0) {
    sums[0] = host_roof(storage == DType::kF64 ? DType::kF32 : storage,
                        std::min(allowed_cpus(), session.hosts().ranks_here * rank.threads));
  }
  rank.control->all_reduce(Tensor::of<double>(sums, {2}), {.label = "roof of the hosts"})
      .wait_host();
  roof_ = sums[0];
  gpus_ = sums[1];
}

StepSpeed RunSpeed::of(const RankContext& rank, const StepResult& step,
                       const LedgerTotals& before) const {
  const double tokens_per_s = static_cast<double>(step.tokens) / step.seconds;
  const double flops = tokens_per_s * flops_per_token_;
  const LedgerTotals now(*rank.ledger);
  StepSpeed speed{.tokens_per_s = tokens_per_s,
                  .tflops_per_rank = flops / rank.layout.world() / 1e12,
                  .roof_fraction = flops / roof_,
                  .comm_calls = now.calls - before.calls,
                  .comm_bytes = now.bytes - before.bytes,
                  .comm_ms = (now.seconds - before.seconds) * 1e3,
                  .comm_exposed_ms = (now.exposed_seconds - before.exposed_seconds) * 1e3};
  if (peak_) {
    speed.utilization = {flops / (gpus_ * *peak_ * 1e12), *peak_};
  }
  return speed;
}

}  // namespace tandem
