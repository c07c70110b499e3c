#include "tools/verify/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem::verify {

namespace {

enum class RowFault { kDropped, kTwice };

/// Turns the last row with a target of each step's last micro-batch into padding, or puts the row
/// before it in its place.
class FaultySource final : public DataSource {
 public:
  FaultySource(std::unique_ptr<DataSource> source, RowFault fault)
      : source_(std::move(source)), fault_(fault) {}

  std::span<const MicroBatch> fetch_step(std::int64_t consumed_samples) override {
    const auto batches = source_->fetch_step(consumed_samples);
    changed_.assign(batches.begin(), batches.end());
    const auto last = std::find_if(changed_.rbegin(), changed_.rend(),
                                   [](const MicroBatch& b) { return b.tokens > 1; });
    if (last != changed_.rend()) {
      const std::int64_t row = last->tokens - 1;
      if (fault_ == RowFault::kDropped) {
        drop(*last, row);
      } else {
        repeat(*last, row);
      }
    }
    return changed_;
  }
  std::int64_t evaluation_batches() const override { return 0; }
  const MicroBatch& fetch_evaluation(std::int64_t i) override {
    return source_->fetch_evaluation(i);
  }
  std::string describe() const override { return source_->describe(); }

 private:
  /// The source's memory is the run's own, and filled anew for each step.
  static void drop(MicroBatch& batch, std::int64_t row) {
    batch.tokens = row;
    if (!batch.targets.absent()) {
      batch.targets.as<std::int32_t>()[row] = -1;
    }
  }
  static void repeat(MicroBatch& batch, std::int64_t row) {
    for (const Tensor& tensor : {batch.ids, batch.targets, batch.input, batch.expected}) {
      if (!tensor.absent()) {
        const std::size_t bytes = tensor.bytes() / static_cast<std::size_t>(tensor.dim(0));
        const auto at = static_cast<std::size_t>(row) * bytes;
        std::copy_n(tensor.data + at - bytes, bytes, tensor.data + at);
      }
    }
  }

  std::unique_ptr<DataSource> source_;
  RowFault fault_;
  std::vector<MicroBatch> changed_;
};

/// The smallest power of two by which one tensor's gradient, scaled by 1 + it, is refused.
PlantedFault smallest_scale(const RealRuns& runs, const std::vector<Row>& rows, DType storage,
                            const std::string& name) {
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const Row& r) { return r.tensor == "gradient " + name; });
  const std::vector<double>& clean = runs.layout.gradients.at(name);
  double seen_at = 0.0;
  for (int exponent = -4; exponent >= -40; --exponent) {
    const double scale = std::ldexp(1.0, exponent);
    std::vector<double> faulty = clean;
    for (double& value : faulty) {
      value *= 1.0 + scale;
    }
    if (relative_error(faulty, runs.reference.gradients.at(name)) <= budget_of(*row, storage)) {
      break;
    }
    seen_at = scale;
  }
  return {fmt::format("gradient {} scaled by 1 + {:.1e}", name, seen_at), seen_at > 0.0};
}

}  // namespace

RunPlan row_fault(const RunPlan& plan, int index) {
  RunPlan faulty = plan;
  faulty.make_source = [plan, index](const Config& config, const Layout& layout, DType storage) {
    auto source = plan.make_source ? plan.make_source(config, layout, storage)
                                   : make_data_source(config, layout, {.storage = storage});
    return std::make_unique<FaultySource>(std::move(source),
                                          index == 0 ? RowFault::kDropped : RowFault::kTwice);
  };
  return faulty;
}

std::vector<PlantedFault> smallest_faults(const RealRuns& runs, const std::vector<Row>& rows,
                                          DType storage) {
  const double tokens = runs.reference.tokens.front();
  std::vector<PlantedFault> faults = {
      {fmt::format("1 of {} rows of a step dropped", tokens),
       refused(runs, runs.row_faults.at(0), storage)},
      {fmt::format("1 of {} rows of a step counted twice, another not at all", tokens),
       refused(runs, runs.row_faults.at(1), storage)}};
  // The first and the last matrix that backward comes to.
  for (const std::string& name :
       {runs.layout.parameters.back().name, runs.layout.parameters.front().name}) {
    faults.push_back(smallest_scale(runs, rows, storage, name));
  }
  return faults;
}

}  // namespace tandem::verify
