#include "tools/verify/real.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/verify/faults.h"
#include "tools/verify/variants.h"

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

/// Visits all numbers of an outcome that rank 0 compares.
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

/// Moves what rank `root` has, whatever its size, to rank 0; nothing is left anywhere else.
void bring_home(Communicator& control, std::vector<double>& values, int root) {
  if (root == 0 && control.index() == 0) {
    return;
  }
  if (root != 0) {
    std::int64_t size = std::ssize(values);
    control.broadcast(Tensor(&size, DType::kI64, {1}), root, {.label = "verify run"}).wait_host();
    values.resize(static_cast<std::size_t>(size));
    control.broadcast(Tensor::of<double>(values, {size}), root, {.label = "verify run"})
        .wait_host();
  }
  if (control.index() != 0) {
    std::vector<double>().swap(values);
  }
}

/// The outcome's names without its numbers.
Outcome names_of(const Outcome& outcome) {
  Outcome names;
  names.parameters = outcome.parameters;
  names.activation_order = outcome.activation_order;
  for (WholeTensors Outcome::*tensors :
       {&Outcome::initial, &Outcome::gradients, &Outcome::weights, &Outcome::activations,
        &Outcome::local_gradients, &Outcome::first_weights}) {
    for (const auto& [name, values] : outcome.*tensors) {
      (names.*tensors)[name];
    }
  }
  return names;
}

/// Performs `count` one-rank runs, dealt out to the ranks, and hands rank 0 the outcome of each in
/// order. `names` of what is compared.
void run_and_bring_home(World& world, Communicator& control, int count, const Outcome& names,
                        const std::function<Outcome(int)>& perform,
                        const std::function<void(int, Outcome&&)>& take) {
  for (int first = 0; first < count; first += world.size()) {
    const int own = first + world.rank();
    Outcome mine = own < count ? perform(own) : Outcome();
    for (int i = first; i < std::min(first + world.size(), count); ++i) {
      Outcome outcome = i == own ? std::move(mine) : names;
      visit_numbers(outcome,
                    [&](std::vector<double>& values) { bring_home(control, values, i - first); });
      if (world.rank() == 0) {
        take(i, std::move(outcome));
      }
    }
  }
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

RealArgument::RealArgument(World& world, const Config& config, const RunPlan& plan)
    : world_(&world),
      config_(config),
      plan_(plan),
      host_(make_reference_device(1)),
      control_(world.make_group("verify runs",
                                Layout{config.parallel.tp, config.parallel.dp, 0}.world_group(),
                                *host_, nullptr, nullptr)) {
  plan_.watch_every =
      std::max<std::int64_t>(config.train.global_batch * config.data.seq_len / kWatchedRows, 1);
}

void RealArgument::run(const Decorators& under_test) {
  runs_.layout = run_layout(*world_, config_, plan_, under_test);
  names_ = names_of(runs_.layout);
  Config reference = config_;
  reference.device = DeviceChoice::kReference;
  // Run 0 is the reference, then come the planted faults.
  run_and_bring_home(
      *world_, *control_, 1 + kRowFaults, names_,
      [&](int i) {
        return i == 0 ? run_one_rank(reference, 1, plan_)
                      : run_one_rank(config_, 1, row_fault(plan_, i - 1));
      },
      [&](int i, Outcome&& outcome) {
        if (i == 0) {
          runs_.reference = std::move(outcome);
        } else {
          runs_.row_faults.push_back(errors_against(outcome, runs_.reference));
        }
      });
  add_variants(kVariants, {});
}

void RealArgument::look_again() { add_variants(kMoreVariants, measured_noise()); }

GradientNoise RealArgument::measured_noise() {
  std::vector<double> deviations(names_.parameters.size(), 0.0);
  if (world_->rank() == 0) {
    std::size_t row = 0;
    std::map<std::string, double> squares;
    visit_values(runs_.reference, runs_.reference,
                 [&](int, const std::string& tensor, const auto&, const auto&, bool) {
                   for (const Errors& errors : runs_.variants) {
                     squares[tensor] += errors[row] * errors[row];
                   }
                   ++row;
                 });
    for (std::size_t i = 0; i < deviations.size(); ++i) {
      const std::string& name = names_.parameters[i].name;
      const std::vector<double>& gradient = runs_.reference.gradients.at(name);
      const double norm =
          std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0);
      deviations[i] = std::sqrt(squares.at("gradient " + name) * norm /
                                static_cast<double>(runs_.variants.size() * gradient.size()));
    }
  }
  control_
      ->broadcast(Tensor::of<double>(deviations, {std::ssize(deviations)}), 0,
                  {.label = "verify noise"})
      .wait_host();
  GradientNoise noise;
  for (std::size_t i = 0; i < deviations.size(); ++i) {
    noise[names_.parameters[i].name] = deviations[i];
  }
  return noise;
}

void RealArgument::add_variants(int count, const GradientNoise& noise) {
  const int done = variants_;
  variants_ += count;
  run_and_bring_home(
      *world_, *control_, count, names_,
      [&](int i) { return run_variant(config_, done + i, plan_, noise); },
      [&](int, Outcome&& outcome) {
        runs_.variants.push_back(errors_against(outcome, runs_.reference));
      });
}

}  // namespace tandem::verify
