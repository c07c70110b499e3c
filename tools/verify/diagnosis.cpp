#include "tools/verify/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tandem::verify {

namespace {

/// The least-squares factor between two tensors, and how much it leaves unexplained.
struct Factor {
  double value = 1.0;
  double residual = 0.0;
};

Factor factor_between(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0.0, bb = 0.0, rest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    bb += b[i] * b[i];
  }
  const double value = bb > 0.0 ? ab / bb : 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    rest += (a[i] - value * b[i]) * (a[i] - value * b[i]);
  }
  return {value, bb > 0.0 ? std::sqrt(rest / bb) : 0.0};
}

bool close(double a, double b) { return std::abs(a - b) <= 1e-3 * std::abs(b); }

/// "the factor tp", where the factor is one that a missing or repeated reduction leaves behind.
std::string signature(double factor, const Config& config) {
  const double tp = config.parallel.tp;
  const double dp = config.parallel.dp;
  const auto accumulation = static_cast<double>(config.accumulation());
  std::vector<std::string> names;
  const auto candidate = [&](double size, const char* name, const char* often, const char* rarely) {
    if (size > 1.0 && close(factor, size)) {
      names.push_back(fmt::format("{} ({})", name, often));
    }
    if (size > 1.0 && close(factor, 1.0 / size)) {
      names.push_back(fmt::format("1/{} ({})", name, rarely));
    }
  };
  candidate(tp, "tp", "added once per tensor-parallel rank", "one shard only, or averaged");
  candidate(dp, "dp", "summed twice over data ranks", "averaged over data ranks, or one rank's");
  candidate(accumulation, "accumulation", "a micro-batch counted repeatedly",
            "a mean of micro-batch means, or the last one only");
  return names.empty() ? "" : fmt::format(": {}", fmt::join(names, " or "));
}

/// Which tensor-parallel shards of a cut parameter are off.
std::string where(const ParameterSpec& spec, const std::vector<double>& a,
                  const std::vector<double>& b, const Config& config) {
  if (spec.cut_dimension < 0 || config.parallel.tp == 1) {
    return "";
  }
  std::vector<std::string> bad;
  for (int rank = 0; rank < config.parallel.tp; ++rank) {
    const Parameter part(spec, {config.parallel.tp, 1, rank}, 0);
    std::vector<double> own, expected;
    part.for_each_run([&](std::int64_t, std::int64_t at, std::int64_t length) {
      own.insert(own.end(), a.begin() + at, a.begin() + at + length);
      expected.insert(expected.end(), b.begin() + at, b.begin() + at + length);
    });
    if (relative_error(own, expected) > 0.1 * relative_error(a, b)) {
      bad.push_back(std::to_string(rank));
    }
  }
  return static_cast<int>(bad.size()) == config.parallel.tp
             ? " on every tensor-parallel rank"
             : fmt::format(" on tensor-parallel rank {} only", fmt::join(bad, ", "));
}

std::string in_front(const Config& config) {
  return config.parallel.sequence_parallel ? "GatherFromSequenceParallel" : "CopyToTensorParallel";
}
std::string behind(const Config& config) {
  return config.parallel.sequence_parallel ? "ReduceScatterToSequenceParallel"
                                           : "ReduceFromTensorParallel";
}

/// What lies between a parameter's gradient and the one that backward completes before it.
std::string passed(const std::string& name, const Config& config) {
  const std::string block = name.substr(0, name.find('.', name.starts_with("layers.") ? 7 : 0));
  if (name.starts_with("head")) {
    return fmt::format(
        "it is the first gradient: check the token weighting, the vocabulary-parallel "
        "cross-entropy "
        "(row maxima, row sums, padded columns), and the forward pass, whose last operator is f of "
        "the head ({}.forward)",
        in_front(config));
  }
  if (name.starts_with("norm.")) {
    return fmt::format(
        "its input gradient passed f of the head: check {}.backward, and for norm "
        "weights the sum of partial gradients over tp",
        in_front(config));
  }
  if (name.ends_with("fc2.weight") || name.ends_with("fc2.bias")) {
    return fmt::format(
        "its output gradient came through the norm and residual of the layer above and g of {} "
        "({}.backward); check those, dropout's backward, and where the bias is added",
        block, behind(config));
  }
  if (name.ends_with("fc1.weight") || name.ends_with("fc1.bias")) {
    return fmt::format(
        "its output gradient passed fc2's backward_input and the activation's "
        "backward of {}; its input passed f ({}.forward)",
        block, in_front(config));
  }
  if (name.ends_with("norm.weight") || name.ends_with("norm.bias")) {
    return fmt::format(
        "its input gradient passed f of {}: check {}.backward{}", block, in_front(config),
        config.parallel.sequence_parallel ? ", and the sum of token-sharded gradients over tp"
                                          : "");
  }
  return fmt::format(
      "its gradient passed the norm of layers.0 and g of the embedding: check "
      "{}.backward and the vocabulary ranges of the shards",
      behind(config));
}

}  // namespace

std::string diagnose(const std::vector<Row>& rows, const Outcome& layout, const Outcome& truth,
                     const Config& config) {
  std::set<std::string> failed;
  for (const Row& row : rows) {
    if (!row.pass) {
      failed.insert(row.tensor);
    }
  }
  if (failed.empty()) {
    return "";
  }
  for (const ParameterSpec& spec : layout.parameters) {
    if (failed.count("initial " + spec.name) > 0) {
      return fmt::format(
          "initial {} differs{}: weights must be drawn from global indices, cut afterwards",
          spec.name,
          where(spec, layout.initial.at(spec.name), truth.initial.at(spec.name), config));
    }
  }
  for (auto spec = layout.parameters.rbegin(); spec != layout.parameters.rend(); ++spec) {
    if (failed.count("gradient " + spec->name) == 0) {
      continue;
    }
    const auto& own = layout.gradients.at(spec->name);
    const auto& expected = truth.gradients.at(spec->name);
    const Factor factor = factor_between(own, expected);
    const bool uniform = factor.residual < 1e-3 && std::abs(factor.value - 1.0) > 1e-7;
    const std::string how =
        uniform ? fmt::format("off by {:.7g}x{}{}", factor.value,
                              where(*spec, own, expected, config), signature(factor.value, config))
                : fmt::format("wrong{}", where(*spec, own, expected, config));
    return fmt::format("gradient {} is {}; {}", spec->name, how, passed(spec->name, config));
  }
  for (const Row& row : rows) {
    if (!row.pass && row.tensor.starts_with("copies")) {
      return row.tensor +
             " differ between ranks that should hold the same bits: check the reduction "
             "over data ranks, and that the clip factor is the same on every rank";
    }
  }
  if (failed.count("loss") > 0) {
    return "the gradients are right and the loss is not: check how the loss is summed over ranks "
           "(token-weighted, each tensor-parallel group once)";
  }
  if (failed.count("gradient norm") > 0) {
    const double ratio = layout.grad_norms.front() / truth.grad_norms.front();
    return fmt::format(
        "the gradients are right and their global norm is off by {:.6g}x{}: each "
        "value counts once, replicated ones on one tensor-parallel rank",
        ratio, signature(ratio * ratio, config));
  }
  return *failed.begin() +
         " is wrong though gradients and norm are right: check clipping, the schedule's index and "
         "the "
         "optimizer's update";
}

}  // namespace tandem::verify
