#include "tools/verify/real.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/verify/faults.h"
#include "tools/verify/variants.h"
#include "train/launch.h"

namespace tandem::verify {

namespace {

/// Tokens of a step that the reference device gets through in about a second, at its measured rate
/// of some 2 GFLOP/s.
constexpr double kReferenceFlops = 4e9;

double matmul_parameters(const Config& config) {
  const auto& model = config.model;
  const double block = (model.activation == Activation::kSwiglu ? 3.0 : 2.0) *
                       static_cast<double>(model.hidden) * static_cast<double>(model.ffn);
  return static_cast<double>(model.layers) * block +
         static_cast<double>(model.hidden) * static_cast<double>(model.vocab_size);
}

/// Flattens an outcome into numbers that travel, and back; `like` has the shapes.
template <typename Visit>
void visit_numbers(Outcome& outcome, Visit&& visit) {
  for (WholeTensors* tensors : {&outcome.initial, &outcome.gradients, &outcome.weights}) {
    for (auto& [name, values] : *tensors) {
      visit(values);
    }
  }
  visit(outcome.losses);
  visit(outcome.grad_norms);
}

/// Makes `outcome`, which rank `root` has, known to all; the others give one of the same shapes.
void share(Communicator& control, Outcome& outcome, int root) {
  visit_numbers(outcome, [&](std::vector<double>& values) {
    control
        .broadcast(Tensor::of<double>(values, {std::ssize(values)}), root,
                   {.label = "verify share"})
        .wait_host();
  });
}

}  // namespace

Config cut_config(const Config& config, std::string& cut) {
  Config small = config;
  const std::int64_t accumulation = std::min<std::int64_t>(config.accumulation(), 2);
  const double tokens = kReferenceFlops / (6.0 * matmul_parameters(config));
  const auto sequences = static_cast<double>(config.parallel.dp * accumulation);
  const auto per_sequence = static_cast<std::int64_t>(tokens / sequences);
  // Whole sequences while they fit, then shorter ones.
  small.train.micro_batch =
      std::clamp<std::int64_t>(per_sequence / config.data.seq_len, 1, config.train.micro_batch);
  if (per_sequence < config.data.seq_len) {
    small.data.seq_len = std::max<std::int64_t>(per_sequence / 8 * 8, 8);
  }
  small.train.global_batch = small.train.micro_batch * config.parallel.dp * accumulation;
  cut.clear();
  const auto note = [&](const char* key, std::int64_t from, std::int64_t to) {
    if (from != to) {
      cut += fmt::format("{}{} {} -> {}", cut.empty() ? "" : ", ", key, from, to);
    }
  };
  note("train.micro_batch", config.train.micro_batch, small.train.micro_batch);
  note("train.global_batch", config.train.global_batch, small.train.global_batch);
  note("data.seq_len", config.data.seq_len, small.data.seq_len);
  return small;
}

RealRuns run_real(World& world, const Config& config, const RunPlan& plan) {
  RealRuns runs;
  runs.layout = run_layout(world, config, plan);

  // Run 0 is the reference, 1 the plain one-rank run; then its variants, then the planted faults.
  constexpr int kRuns = 2 + kVariants + kRowFaults;
  std::vector<Outcome> outcomes(kRuns, runs.layout);  // the shapes to receive into
  for (int i = world.rank(); i < kRuns; i += world.size()) {
    Config one = config;
    RunPlan alone = plan;
    alone.make_device = nullptr;
    if (i == 0) {
      one.device = DeviceChoice::kReference;
      outcomes[0] = run_one_rank(one, 1, alone);
    } else if (i == 1) {
      outcomes[1] = run_one_rank(one, 1, alone);
    } else if (i < 2 + kVariants) {
      outcomes[static_cast<std::size_t>(i)] = run_variant(one, i - 2, alone);
    } else {
      outcomes[static_cast<std::size_t>(i)] =
          run_one_rank(one, 1, row_fault(alone, i - 2 - kVariants));
    }
  }
  const std::unique_ptr<Device> host = make_reference_device(1);
  const auto control = world.make_group(
      "verify results", Layout{config.parallel.tp, config.parallel.dp, 0}.world_group(), *host,
      nullptr, nullptr);
  for (int i = 0; i < kRuns; ++i) {
    share(*control, outcomes[static_cast<std::size_t>(i)], i % world.size());
  }
  runs.reference = std::move(outcomes[0]);
  runs.one_rank = std::move(outcomes[1]);
  const auto faults = outcomes.begin() + 2 + kVariants;
  runs.variants.assign(std::make_move_iterator(outcomes.begin() + 2),
                       std::make_move_iterator(faults));
  runs.row_faults.assign(std::make_move_iterator(faults), std::make_move_iterator(outcomes.end()));
  return runs;
}

}  // namespace tandem::verify
