#include "train/watch/non_finite.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace tandem {

namespace {

constexpr std::size_t kFields = 5;
static_assert(sizeof(NonFiniteValues) == kFields * sizeof(std::int64_t));

/// The ranks with `field` different from `usual`.
std::vector<int> ranks_with(std::span<const NonFiniteValues> ranks,
                            std::int64_t NonFiniteValues::*field) {
  std::vector<int> found;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].*field > 0) {
      found.push_back(static_cast<int>(rank));
    }
  }
  return found;
}

std::string ranks_text(const std::vector<int>& ranks, std::size_t all) {
  if (ranks.size() == all) {
    return all == 1 ? "" : " on every rank";
  }
  return fmt::format(" on rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string more(std::int64_t parameters) {
  return parameters > 1 ? fmt::format(" and {} more", parameters - 1) : "";
}

}  // namespace

std::vector<NonFiniteValues> find_non_finite(const RankContext& rank, const TrainState& state) {
  Device& device = *rank.device;
  const auto scalar = [&](const Tensor& on_device) {
    std::array<double, 1> value{};
    device.copy(*rank.compute, on_device, Tensor::of<double>(value, {1}));
    rank.compute->synchronize();
    return value[0];
  };
  NonFiniteValues own;
  own.loss = std::isfinite(scalar(state.loss_sum)) ? 0 : 1;
  const auto is_finite = [&](const Tensor& tensor) {
    // The sum of squares is free until the next step makes it anew.
    device.sum_of_squares(*rank.compute, {.x = tensor.flat(), .out = state.sum_of_squares});
    return std::isfinite(scalar(state.sum_of_squares));
  };
  std::int64_t place = 0;
  for (const Parameter& parameter : state.store.parameters()) {
    if (!is_finite(parameter.weight)) {
      own.weight = own.weights++ == 0 ? place : own.weight;
    }
    if (!is_finite(parameter.main_grad)) {
      own.gradient = place;
      ++own.gradients;
    }
    ++place;
  }
  std::vector<NonFiniteValues> all(static_cast<std::size_t>(rank.layout.world()));
  rank.control
      ->all_gather(Tensor(&own, DType::kI64, {1, kFields}),
                   Tensor(all.data(), DType::kI64, {rank.layout.world(), kFields}),
                   {.label = "what is not finite"})
      .wait_host();
  return all;
}

std::string describe_non_finite(std::span<const NonFiniteValues> ranks, const Layout& layout,
                                const std::vector<std::string>& names, std::int64_t first_sample,
                                std::int64_t last_sample) {
  const auto name = [&](std::int64_t place) { return names[static_cast<std::size_t>(place)]; };
  const std::vector<int> weights = ranks_with(ranks, &NonFiniteValues::weights);
  if (!weights.empty()) {
    const NonFiniteValues& first = ranks[static_cast<std::size_t>(weights[0])];
    return fmt::format(
        "the weights are not finite: `{}`{}{}. No later step mends them. Go on from an older "
        "checkpoint (checkpoint.resume: PATH), or check the file that weights were imported from",
        name(first.weight), more(first.weights), ranks_text(weights, ranks.size()));
  }
  const std::vector<int> losses = ranks_with(ranks, &NonFiniteValues::loss);
  if (!losses.empty()) {
    std::vector<bool> data_ranks(static_cast<std::size_t>(layout.dp), false);
    std::size_t bad = 0;
    for (const int rank : losses) {
      const auto data_rank = static_cast<std::size_t>(Layout{layout.tp, layout.dp, rank}.dp_rank());
      bad += data_ranks[data_rank] ? 0 : 1;
      data_ranks[data_rank] = true;
    }
    const std::string where =
        fmt::format("the loss is not finite{}", ranks_text(losses, ranks.size()));
    const std::string samples = fmt::format("samples {} to {}", first_sample, last_sample);
    constexpr const char* kCalmer =
        "lower optim.lr, raise optim.schedule.warmup_steps or lower train.clip_grad_norm";
    if (bad < data_ranks.size()) {
      return fmt::format(
          "{}, while other data ranks' is: its rows are likely at fault. Look at {} "
          "of the data; if they are sound, {}",
          where, samples, kCalmer);
    }
    return fmt::format(
        "{}: activations overflow, as they do when training diverges. Then {}. If "
        "the loss was calm before, look at {} of the data",
        where, kCalmer, samples);
  }
  const std::vector<int> gradients = ranks_with(ranks, &NonFiniteValues::gradients);
  if (gradients.empty()) {
    return "loss and gradients are finite, the sum of their squares is not: gradients are huge. "
           "Lower optim.lr or raise optim.schedule.warmup_steps";
  }
  std::int64_t first = -1, count = 0;
  for (const NonFiniteValues& values : ranks) {
    first = std::max(first, values.gradient);
    count = std::max(count, values.gradients);
  }
  return fmt::format(
      "the loss is finite, but gradients are not: backward comes first to that of `{}`{}{}. "
      "Something overflows there. Lower optim.lr or raise optim.schedule.warmup_steps; in half "
      "precision, see whether precision: fp32 has it too",
      name(first), more(count), ranks_text(gradients, ranks.size()));
}

}  // namespace tandem
