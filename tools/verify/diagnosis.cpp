#include "tools/verify/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
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

std::string on_ranks(const std::vector<std::string>& bad, const Config& config) {
  return static_cast<int>(bad.size()) == config.parallel.tp
             ? " on every tensor-parallel rank"
             : fmt::format(" on tensor-parallel rank {} only", fmt::join(bad, ", "));
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
  return on_ranks(bad, config);
}

/// "off by 2x: tp (...)" or "wrong".
std::string how(const std::vector<double>& own, const std::vector<double>& expected,
                const std::string& place, const Config& config) {
  if (own.size() != expected.size()) {
    return "of another size";
  }
  const Factor factor = factor_between(own, expected);
  const bool uniform = factor.residual < 1e-3 && std::abs(factor.value - 1.0) > 1e-7;
  return uniform ? fmt::format("off by {:.7g}x{}{}", factor.value, place,
                               signature(factor.value, config))
                 : "wrong" + place;
}

std::string in_front(const Config& config) {
  return config.parallel.sequence_parallel ? "GatherFromSequenceParallel" : "CopyToTensorParallel";
}
std::string behind(const Config& config) {
  return config.parallel.sequence_parallel ? "ReduceScatterToSequenceParallel"
                                           : "ReduceFromTensorParallel";
}

/// What computes the activation of this name from the one before it; see probe.cpp for the names.
std::string maker_of(const std::string& name, const Config& config) {
  const std::string block = name.substr(0, name.find(' '));
  const std::string what = name.substr(std::min(name.size(), block.size() + 1));
  const std::string f = fmt::format("f of {} ({}", block, in_front(config));
  const std::string g = fmt::format("g of {} ({}", block, behind(config));
  if (name == "embed partial sums") {
    return "the embedding's lookup: each shard takes the ids of its own range and no other";
  }
  if (what == "fc1 input" || name == "head input") {
    return f + ".forward)";
  }
  if (what == "d_normed") {
    return f + ".backward)";
  }
  if (what == "fc2 output" || name == "embed output") {
    return g + ".forward)";
  }
  if (what == "fc2 d_output" || name == "embed d_output") {
    return g + ".backward)";
  }
  static const std::map<std::string, std::string> kKernels = {
      {"ids", "the data source: a row's ids depend on its key alone"},
      {"targets", "the data source: a row's target depends on its key alone"},
      {"input", "the data source: a row's input depends on its key alone"},
      {"expected", "the data source: a row's expected output depends on its key alone"},
      {"normed", "the norm's forward (norm_forward: eps, variance, weight, bias)"},
      {"fc1 output",
       "fc1's matmul and bias (ColumnParallelLinear::forward); swiglu's fc1 is [gate; up] in each "
       "shard"},
      {"activated", "the activation's forward (activation_forward)"},
      {"fc2 partial sums",
       "fc2's matmul (RowParallelLinear::forward), which adds no bias: that comes once, after the "
       "reduction"},
      {"output",
       "bias, dropout and residual (bias_dropout_add): bias once, mask by row key, 1 / (1 - p)"},
      {"logits", "the head's matmul (ColumnParallelLinear::forward)"},
      {"loss row maxima",
       "the cross-entropy's row maxima: over real columns only, then the max over tensor-parallel "
       "ranks"},
      {"loss partial row sums",
       "the cross-entropy's row sums: over real columns only, the target in one shard"},
      {"loss row sums", "the sum of the cross-entropy's row sums over tensor-parallel ranks"},
      {"d_logits",
       "the cross-entropy's backward, and the token weighting: every token's seed is 1 / N, N "
       "being "
       "the tokens of the whole step"},
      {"d_y",
       "the loss's backward, and the token weighting: every token's seed is 1 / N, N being the "
       "tokens of the whole step"},
      {"head d_input partial sums", "the head's input-gradient matmul (backward_input)"},
      {"d_residual", "the norm's backward (norm_backward), with the residual's gradient added"},
      {"d_branch", "dropout's backward: the forward's mask and 1 / (1 - p)"},
      {"d_activated", "fc2's input-gradient matmul (RowParallelLinear::backward_input)"},
      {"fc1 d_output", "the activation's backward (activation_backward)"},
      {"fc1 d_input partial sums",
       "fc1's input-gradient matmul (ColumnParallelLinear::backward_input)"},
  };
  const auto whole = kKernels.find(name);
  const auto maker = whole != kKernels.end() ? whole : kKernels.find(what);
  ensure(maker != kKernels.end(), "an activation that the diagnosis has no words for");
  return (whole == kKernels.end() ? "in " + block + ", " : "") + maker->second;
}

/// Which tensor-parallel ranks' columns of an activation are off, where it is cut by columns.
std::string where_columns(const std::string& name, const std::vector<double>& own,
                          const std::vector<double>& expected, const Config& config) {
  const bool units =
      name.ends_with("activated") || name.ends_with("fc1 output") || name.ends_with("fc1 d_output");
  const bool vocabulary = name.ends_with("logits");
  if ((!units && !vocabulary) || config.parallel.tp == 1 || own.size() != expected.size()) {
    return "";
  }
  // [rows, parts, width]: the same rule as for parameters, where a part is a row more.
  const std::int64_t width = units ? config.model.ffn : config.model.vocab_size;
  const std::int64_t local = (width + config.parallel.tp - 1) / config.parallel.tp;
  std::set<std::int64_t> ranks;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double difference = std::abs(own[i] - expected[i]);
    if (difference > 1e-3 * std::abs(expected[i]) || !std::isfinite(own[i])) {
      ranks.insert(static_cast<std::int64_t>(i) % width / local);
    }
  }
  std::vector<std::string> bad;
  for (const std::int64_t rank : ranks) {
    bad.push_back(std::to_string(rank));
  }
  return bad.empty() ? "" : on_ranks(bad, config);
}

/// What is wrong with the set of rows.
std::string diagnose_rows(const Outcome& layout, const Outcome& truth) {
  std::vector<double> missing, extra;
  std::set_difference(truth.row_keys.begin(), truth.row_keys.end(), layout.row_keys.begin(),
                      layout.row_keys.end(), std::back_inserter(missing));
  std::set_difference(layout.row_keys.begin(), layout.row_keys.end(), truth.row_keys.begin(),
                      truth.row_keys.end(), std::back_inserter(extra));
  return fmt::format(
      "the rows of step 1 are not those of one rank: {} of {} missing{}, {} counted again or "
      "foreign{}. Check the data source: which samples each data rank and micro-batch takes, and "
      "that every position with a target is a row once",
      missing.size(), truth.row_keys.size(),
      missing.empty() ? "" : fmt::format(" (key {:.0f} first)", missing.front()), extra.size(),
      extra.empty() ? "" : fmt::format(" (key {:.0f} first)", extra.front()));
}

/// Gradients were right on each rank and are wrong after the reductions.
std::string reduction_of(const ParameterSpec& spec, const std::set<std::string>& failed,
                         const Outcome& layout, const Config& config) {
  const bool vector = spec.shape.rank() == 1;
  const bool all_partial =
      std::all_of(layout.parameters.begin(), layout.parameters.end(), [&](const auto& other) {
        return other.partial_gradient || failed.count("gradient " + other.name) == 0;
      });
  if (spec.partial_gradient && all_partial && config.parallel.tp > 1) {
    return "the sum of sequence-parallel partial gradients over tensor-parallel ranks: once per "
           "step, after the data reduction";
  }
  return fmt::format(
      "the reduction over data ranks of the bucket \"gradients {}\": a sum, once per step, started "
      "by the last micro-batch when its gradients are complete",
      vector ? "vectors" : spec.block);
}

/// The update of step 1 is wrong though gradients and norm are right. `kind` names its rows.
std::string diagnose_update(const std::set<std::string>& failed, const std::string& kind,
                            const Outcome& layout, const Outcome& truth) {
  const bool first = kind == "first weight ";
  bool matrices = false, vectors = false;
  std::string name;
  for (const ParameterSpec& spec : layout.parameters) {
    if (failed.count(kind + spec.name) > 0) {
      (spec.shape.rank() > 1 ? matrices : vectors) = true;
      name = name.empty() ? spec.name : name;
    }
  }
  std::vector<double> moved = (first ? layout.first_weights : layout.weights).at(name);
  std::vector<double> expected = (first ? truth.first_weights : truth.weights).at(name);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    moved[i] -= truth.initial.at(name)[i];
    expected[i] -= truth.initial.at(name)[i];
  }
  return fmt::format(
      "the optimizer's update of {} is wrong (weight {} moved {:.6g}x as far) though gradients and "
      "norm are right: check {}",
      matrices && vectors ? "all parameters"
      : vectors           ? "vectors alone"
                          : "matrices alone",
      name, factor_between(moved, expected).value,
      matrices && vectors
          ? "the clip factor, the schedule's index, bias correction, and eps outside "
            "the root"
      : vectors ? "weight decay, which must not touch biases and norm weights"
                : "weight decay, which is decoupled and of matrices only");
}

/// All of step 1 is right, its update too.
std::string diagnose_later_step(const std::set<std::string>& failed) {
  if (failed.count("loss") > 0) {
    return "all of step 1 is right, and the loss of a later step is not: check what goes from step "
           "to step (samples, dropout's update number, stored weights)";
  }
  if (failed.count("gradient norm") > 0) {
    return "all of step 1 is right, and the gradients of a later step are not: check that the "
           "first "
           "micro-batch overwrites what the step before left";
  }
  return "all of step 1 is right, and so are later losses and gradients: check the optimizer's "
         "update of a later step (its state, update number, schedule)";
}

}  // namespace

std::string diagnose(const std::vector<Row>& rows, const Outcome& layout, const Outcome& truth,
                     const Config& config) {
  if (all_pass(rows)) {
    return "";
  }
  std::set<std::string> failed;
  for (const Row& row : rows) {
    if (!row.pass) {
      failed.insert(row.tensor);
    }
  }
  for (const ParameterSpec& spec : layout.parameters) {
    if (failed.count("initial " + spec.name) > 0) {
      return fmt::format(
          "initial {} is wrong{}: weights must be drawn from global indices, cut afterwards",
          spec.name,
          where(spec, layout.initial.at(spec.name), truth.initial.at(spec.name), config));
    }
  }
  for (const ParameterSpec& spec : layout.parameters) {
    if (failed.count("initial copies of " + spec.name) > 0) {
      return fmt::format(
          "initial {} is not the same on every rank that holds it: weights must be drawn from "
          "global "
          "indices and one seed",
          spec.name);
    }
  }
  if (failed.count("rows of the step") > 0) {
    return diagnose_rows(layout, truth);
  }
  if (failed.count("token counts") > 0) {
    return fmt::format(
        "the step's token count N is {:.0f} instead of {:.0f}: check the count of targets and its "
        "sum "
        "over data ranks, one tensor-parallel rank of each",
        layout.tokens.front(), truth.tokens.front());
  }
  for (const std::string& name : layout.activation_order) {
    if (failed.count(name) > 0) {
      const auto& own = layout.activations.at(name);
      const auto& expected = truth.activations.at(name);
      return fmt::format(
          "{}: {}{}; everything before it is right. Check {}", name,
          own == expected ? "right on the first tensor-parallel rank only"
                          : how(own, expected, where_columns(name, own, expected, config), config),
          layout.unequal_activations.count(name) > 0 && own != expected
              ? " (and differs between tensor-parallel ranks)"
              : "",
          maker_of(name, config));
    }
  }
  for (const char* kind : {"local gradient ", "gradient "}) {
    const bool local = kind[0] == 'l';
    for (auto spec = layout.parameters.rbegin(); spec != layout.parameters.rend(); ++spec) {
      if (failed.count(kind + spec->name) == 0) {
        continue;
      }
      const auto& own = (local ? layout.local_gradients : layout.gradients).at(spec->name);
      const auto& expected = (local ? truth.local_gradients : truth.gradients).at(spec->name);
      return fmt::format(
          "{}{}: {}{}. Check {}", kind, spec->name,
          how(own, expected, where(*spec, own, expected, config), config),
          local ? "; what it is made of is right" : "; each rank's own part is right",
          local ? "its backward_weight, and its accumulation over micro-batches: the first "
                  "overwrites, later ones add, and data ranks are summed after the last alone"
                : reduction_of(*spec, failed, layout, config));
    }
  }
  const auto fails_in_step_1 = [&](const char* tensor) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return !row.pass && row.step == 1 && row.tensor == tensor;
    });
  };
  if (fails_in_step_1("loss")) {
    return fmt::format(
        "the gradients are right and the loss is {}: check how it is summed over ranks "
        "(token-weighted, each tensor-parallel group once)",
        how({layout.losses.front()}, {truth.losses.front()}, "", config));
  }
  const double ratio = layout.grad_norms.front() / truth.grad_norms.front();
  if (fails_in_step_1("gradient norm")) {
    return fmt::format(
        "the gradients are right and their global norm is off by {:.6g}x{}: each value counts "
        "once, "
        "replicated ones on one tensor-parallel rank",
        ratio, signature(ratio * ratio, config));
  }
  for (const Row& row : rows) {
    if (!row.pass && row.tensor.starts_with("copies")) {
      return row.tensor +
             " differ between ranks that should hold the same bits: check the reduction over data "
             "ranks, and that the clip factor and the update are the same on every rank";
    }
  }
  const std::string kind = layout.first_weights.empty() ? "weight " : "first weight ";
  const bool update_failed =
      std::any_of(layout.parameters.begin(), layout.parameters.end(),
                  [&](const auto& spec) { return failed.count(kind + spec.name) > 0; });
  return update_failed ? diagnose_update(failed, kind, layout, truth) : diagnose_later_step(failed);
}

}  // namespace tandem::verify
