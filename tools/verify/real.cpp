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

/// Rows of step 1 that are watched between the operators, about.
constexpr std::int64_t kWatchedRows = 64;

double matmul_parameters(const Config& config) {
  const auto& model = config.model;
  const double block = (model.activation == Activation::kSwiglu ? 3.0 : 2.0) *
                       static_cast<double>(model.hidden) * static_cast<double>(model.ffn);
  return static_cast<double>(model.layers) * block +
         static_cast<double>(model.hidden) * static_cast<double>(model.vocab_size);
}

/// Visits all numbers of an outcome that the ranks of a layout must share.
template <typename Visit>
void visit_numbers(Outcome& outcome, Visit&& visit) {
  for (WholeTensors* tensors :
       {&outcome.initial, &outcome.gradients, &outcome.weights, &outcome.activations,
        &outcome.local_gradients, &outcome.first_weights}) {
    for (auto& [name, values] : *tensors) {
      visit(values);
    }
  }
  for (auto* series : {&outcome.losses, &outcome.grad_norms, &outcome.tokens, &outcome.row_keys}) {
    visit(*series);
  }
}

/// Makes what rank `root` has known to all, whatever its size.
void share(Communicator& control, std::vector<double>& values, int root) {
  std::int64_t size = std::ssize(values);
  control.broadcast(Tensor(&size, DType::kI64, {1}), root, {.label = "verify share"}).wait_host();
  values.resize(static_cast<std::size_t>(size));
  control.broadcast(Tensor::of<double>(values, {size}), root, {.label = "verify share"})
      .wait_host();
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

RealRuns run_real(World& world, const Config& config, const RunPlan& plan,
                  const Decorators& under_test) {
  RunPlan watched = plan;
  watched.watch_every =
      std::max<std::int64_t>(config.train.global_batch * config.data.seq_len / kWatchedRows, 1);
  RealRuns runs;
  runs.layout = run_layout(world, config, watched, under_test);

  // Run 0 is the reference, then the variants and the planted faults, dealt out to the ranks. Of
  // each only its errors travel, so the first one waits for the reference.
  constexpr int kRuns = 1 + kVariants + kRowFaults;
  const auto perform = [&](int i) {
    if (i == 0) {
      Config reference = config;
      reference.device = DeviceChoice::kReference;
      return run_one_rank(reference, 1, watched);
    }
    return i <= kVariants ? run_variant(config, i - 1, watched)
                          : run_one_rank(config, 1, row_fault(watched, i - 1 - kVariants));
  };
  const int own = world.rank();
  if (own != 0) {  // rank 0 compares; others need the names alone
    visit_numbers(runs.layout,
                  [](std::vector<double>& values) { std::vector<double>().swap(values); });
  }
  Outcome first = own < kRuns ? perform(own) : runs.layout;
  runs.reference = own == 0 ? std::move(first) : runs.layout;  // the names to receive under
  const std::unique_ptr<Device> host = make_reference_device(1);
  const auto control = world.make_group(
      "verify results", Layout{config.parallel.tp, config.parallel.dp, 0}.world_group(), *host,
      nullptr, nullptr);
  visit_numbers(runs.reference, [&](std::vector<double>& values) { share(*control, values, 0); });

  std::vector<Errors> errors(kRuns);
  for (int i = own == 0 ? world.size() : own; i < kRuns; i += world.size()) {
    errors[static_cast<std::size_t>(i)] =
        errors_against(i == own ? first : perform(i), runs.reference);
    first = {};
  }
  for (int i = 0; i < kRuns; ++i) {
    share(*control, errors[static_cast<std::size_t>(i)], i % world.size());
  }
  const auto variants = errors.begin() + 1;
  runs.variants.assign(variants, variants + kVariants);
  runs.row_faults.assign(variants + kVariants, errors.end());
  return runs;
}

}  // namespace tandem::verify
