#include "train/watch/rank_clock.h"

#include <algorithm>
#include <string_view>

namespace tandem {

RankClock::RankClock(const Ledger& ledger)
    : ledger_(&ledger), scheduler_("/proc/thread-self/schedstat") {
  start();
}

void RankClock::start() {
  before_ = totals();
  start_ = std::chrono::steady_clock::now();
}

RankTimes RankClock::stop(const StepResult& step) {
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const Totals now = totals();
  const double busy = std::max(0.0, step.seconds - step.data_seconds - (now.all - before_.all));
  // Some of it may have been while it waited for peers: then it is no loss.
  const double without_cpu = std::min(busy, now.without_cpu - before_.without_cpu);
  return {.data = step.data_seconds,
          .compute = busy - without_cpu,
          .tensor_parallel = now.tensor_parallel - before_.tensor_parallel,
          .data_parallel = now.data_parallel - before_.data_parallel,
          .host = without_cpu + std::max(0.0, wall - step.seconds)};
}

RankClock::Totals RankClock::totals() {
  Totals totals{.all = ledger_->exposed_seconds()};
  for (const Ledger::Line& line : ledger_->lines()) {
    const std::string_view group = line.traffic.key.group.view();
    if (group == "tp") {
      totals.tensor_parallel += line.exposed_seconds;
    } else if (group == "dp") {
      totals.data_parallel += line.exposed_seconds;
    }
  }
  if (scheduler_) {  // "ran waited slices", in nanoseconds
    double ran = 0.0, waited = 0.0;
    scheduler_.seekg(0);
    if (scheduler_ >> ran >> waited) {
      totals.without_cpu = waited * 1e-9;
    }
  }
  return totals;
}

}  // namespace tandem
