#include "train/traffic.h"

#include <algorithm>
#include <string>

#include "train/stop_signal.h"

namespace tandem {

namespace {

/// A rank's group and what it calls, label by label.
class Group {
 public:
  Group(std::vector<Traffic>& all, const char* name, int ranks)
      : all_(&all), name_(name), ranks_(ranks) {}

  /// `elements`: of all calls together, as nccl-tests count them.
  void add(Collective op, DType dtype, const std::string& label, std::int64_t calls,
           std::int64_t elements) const {
    if (ranks_ == 1 || calls == 0) {
      return;
    }
    all_->push_back({.key = {Label(name_), Label(label), op, dtype, ranks_, JobPhase::kStep},
                     .calls = static_cast<std::uint64_t>(calls),
                     .bytes = static_cast<std::uint64_t>(elements) * size_of(dtype)});
  }

 private:
  std::vector<Traffic>* all_;
  const char* name_;
  int ranks_;
};

}  // namespace

std::vector<Traffic> step_traffic(const Config& config, const Layout& layout,
                                  const Precision& precision, const ParameterStore& store,
                                  const StepRows& rows) {
  std::vector<Traffic> all;
  const Group tp(all, "tp", layout.tp);
  const Group dp(all, "dp", layout.dp);
  const Group control(all, "control", layout.world());
  const bool sharded = config.parallel.sequence_parallel;
  const std::int64_t calls = rows.micro_batches;
  const std::int64_t residual = rows.rows * config.model.hidden;
  const bool language_model = config.model.kind == ModelKind::kMlpLm;

  // TokenRegion (layers/tokens.h): what crosses is always [rows, hidden].
  const auto sum = sharded ? Collective::kReduceScatter : Collective::kAllReduce;
  const auto enter = [&](const std::string& region, std::int64_t times) {
    if (sharded) {
      tp.add(Collective::kAllGather, precision.storage, region + " f.forward", times * calls,
             times * residual);
    }
  };
  const auto enter_backward = [&](const std::string& region) {
    tp.add(sum, precision.storage, region + " f.backward", calls, residual);
  };
  const auto leave = [&](const std::string& region) {
    tp.add(sum, precision.storage, region + " g.forward", calls, residual);
  };
  const auto leave_backward = [&](const std::string& region) {
    if (sharded) {
      tp.add(Collective::kAllGather, precision.storage, region + " g.backward", calls, residual);
    }
  };
  const auto block = [](std::int64_t i) { return "layers." + std::to_string(i); };

  control.add(Collective::kAllReduce, DType::kI64, "token count", 1, 1 + std::ssize(kStopSignals));
  if (language_model) {
    leave("embed");
  }
  for (std::int64_t i = 0; i < config.model.layers; ++i) {
    enter(block(i), 2);  // backward gathers fc1's input again rather than keep it
    leave(block(i));
  }
  if (language_model) {
    enter("head", 1);
    tp.add(Collective::kAllReduce, precision.sum, "loss row maxima", calls, rows.rows);
    tp.add(Collective::kAllReduce, precision.sum, "loss row sums", calls, 2 * rows.rows);
    enter_backward("head");
  }
  for (std::int64_t i = config.model.layers; i-- > 0;) {
    leave_backward(block(i));
    enter_backward(block(i));
  }
  if (language_model) {
    leave_backward("embed");
  }
  for (const GradientBucket& bucket : store.buckets()) {
    const bool zero = store.options().sharded;
    dp.add(zero ? Collective::kReduceScatter : Collective::kAllReduce,
           store.options().wire.value_or(precision.main), "gradients " + bucket.name, 1,
           bucket.main_grad.numel());
    if (zero) {
      dp.add(Collective::kAllGather, precision.storage, "weights " + bucket.name, 1,
             bucket.weight.numel());
    }
  }
  if (sharded) {
    std::int64_t ranges = 0, elements = 0;
    for (const OwnedRange& owned : store.owned()) {
      ranges += owned.replicated ? 1 : 0;
      elements += owned.replicated ? owned.range.main_grad.numel() : 0;
    }
    tp.add(Collective::kAllReduce, precision.main, "sequence-parallel gradients", ranges, elements);
  }
  control.add(Collective::kAllReduce, DType::kF64, "loss and gradient norm", 1, 2);
  return all;
}

std::vector<Traffic> run_traffic(const Config& config, const Layout& layout,
                                 const Precision& precision, const ParameterStore& store,
                                 std::int64_t steps, const StepRows& rows) {
  std::vector<Traffic> all = step_traffic(config, layout, precision, store, rows);
  // All that goes with micro-batches is in there; what every step has besides comes again.
  for (const Traffic& each :
       step_traffic(config, layout, precision, store, {.micro_batches = 0, .rows = 0})) {
    const auto sum = std::find_if(all.begin(), all.end(),
                                  [&](const Traffic& other) { return other.key == each.key; });
    sum->calls += static_cast<std::uint64_t>(steps - 1) * each.calls;
    sum->bytes += static_cast<std::uint64_t>(steps - 1) * each.bytes;
  }
  return all;
}

}  // namespace tandem
