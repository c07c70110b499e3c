// What no single key can know: sizes that must divide, keys that exclude each other, and defaults
// that follow from other keys.
#include <optional>
#include <string>

#include "core/error.h"
#include "train/config_settings.h"

namespace tandem {
namespace {

/// "12", or "8 or 12": the positive multiples of `unit` next to `value`.
std::string multiples_near(std::int64_t value, std::int64_t unit) {
  const std::int64_t below = value / unit * unit;
  const std::string above = std::to_string(below + unit);
  return below == 0 ? above : std::to_string(below) + " or " + above;
}

/// Divisors of a number of ranks, as a list.
std::string divisors(int ranks) {
  std::string out;
  for (int d = 1; d <= ranks; ++d) {
    if (ranks % d == 0) out += (out.empty() ? "" : ", ") + std::to_string(d);
  }
  return out;
}

void derive_dp(const Settings& settings, std::optional<int> launched, Config& config) {
  if (settings.is_set("parallel.dp") || !launched) return;
  if (*launched % config.parallel.tp != 0) {
    settings.refuse(config, "parallel.tp",
                    "does not divide the " + std::to_string(*launched) +
                        " ranks that were launched (world " + std::to_string(*launched) + ", tp " +
                        std::to_string(config.parallel.tp) + "): write one of " +
                        divisors(*launched) + ", or launch a multiple of " +
                        std::to_string(config.parallel.tp) + " ranks");
  }
  config.parallel.dp = *launched / config.parallel.tp;
}

void check_idle_keys(const Settings& settings, const Config& config) {
  for (const SchemaKey& key : config_schema()) {
    if (!key.idle || !settings.is_set(key.path)) continue;
    if (const std::string_view why = key.idle(config); !why.empty()) {
      settings.refuse(
          config, key.path,
          "means nothing here, as " + std::string(why) + ": " + settings.removal(key.path));
    }
  }
}

void check_model(const Settings& settings, const Config& config) {
  const ModelConfig& model = config.model;
  const int tp = config.parallel.tp;
  if (model.ffn % tp != 0) {
    settings.refuse(config, "model.ffn",
                    "not divisible by parallel.tp = " + std::to_string(tp) + " (remainder " +
                        std::to_string(model.ffn % tp) + "): write " +
                        multiples_near(model.ffn, tp));
  }
  const DataFormat format = config.data.format;
  const bool without_documents =
      format == DataFormat::kLlmc || format == DataFormat::kNpy || format == DataFormat::kRawU16;
  if (model.kind == ModelKind::kMlpLm && without_documents &&
      config.data.documents == Documents::kPadded) {
    settings.refuse(config, "data.documents",
                    "the format does not say where documents begin: write packed");
  }
  if (model.kind == ModelKind::kFfn && config.data.format != DataFormat::kSynthetic) {
    settings.refuse(config, "data.format",
                    "model.kind ffn trains on generated numbers: write data: {format: synthetic}");
  }
  // Beyond this, counts of bytes and elements would no longer fit 64 bits.
  constexpr double kMaxParameters = 1e15;
  const auto width = static_cast<double>(model.hidden);
  const auto vocabulary =
      model.kind == ModelKind::kMlpLm
          ? static_cast<double>(model.vocab_size) * static_cast<double>(model.context + 1)
          : 0.0;
  const double parameters = width * (vocabulary + 3.0 * static_cast<double>(model.ffn) *
                                                      static_cast<double>(model.layers));
  if (parameters > kMaxParameters) {
    settings.refuse(config, "model.hidden",
                    "with the vocabulary, context, ffn and layers of this config that is more than "
                    "1e15 parameters: write smaller sizes");
  }
}

void check_batch(const Settings& settings, const Config& config) {
  const TrainConfig& train = config.train;
  const std::int64_t slice = train.micro_batch * config.parallel.dp;
  if (train.global_batch % slice != 0) {
    settings.refuse(
        config, "train.global_batch",
        "not divisible by train.micro_batch * parallel.dp = " + std::to_string(train.micro_batch) +
            " * " + std::to_string(config.parallel.dp) + " = " + std::to_string(slice) +
            " (remainder " + std::to_string(train.global_batch % slice) + "): write " +
            multiples_near(train.global_batch, slice));
  }
  constexpr std::int64_t kMaxAccumulation = 1 << 20;
  if (train.global_batch / slice > kMaxAccumulation) {
    settings.refuse(config, "train.global_batch",
                    "makes " + std::to_string(train.global_batch / slice) +
                        " micro-batches a step: write at most " +
                        std::to_string(slice * kMaxAccumulation) + ", or raise train.micro_batch");
  }
  constexpr std::int64_t kMaxRows = INT32_MAX;
  if (train.micro_batch > kMaxRows / config.data.seq_len) {
    settings.refuse(config, "train.micro_batch",
                    "times data.seq_len = " + std::to_string(config.data.seq_len) +
                        " that is more than " + std::to_string(kMaxRows) +
                        " rows in a micro-batch: write at most " +
                        std::to_string(kMaxRows / config.data.seq_len));
  }
  if (config.parallel.sequence_parallel && config.data.seq_len % config.parallel.tp != 0) {
    settings.refuse(config, "data.seq_len",
                    "not divisible by parallel.tp = " + std::to_string(config.parallel.tp) +
                        ", which parallel.sequence_parallel needs: write " +
                        multiples_near(config.data.seq_len, config.parallel.tp) +
                        ", or parallel.sequence_parallel: false");
  }
}

void resolve_evaluation(const Settings& settings, Config& config) {
  const bool held_out = config.model.kind == ModelKind::kMlpLm && config.data.valid_fraction > 0;
  if (held_out || config.train.eval_every == 0) return;
  if (settings.is_set("train.eval_every")) {
    settings.refuse(config, "train.eval_every",
                    config.model.kind == ModelKind::kFfn
                        ? "model.kind ffn has nothing to evaluate: write 0"
                        : "nothing is held out, as data.valid_fraction = 0: write 0, or a "
                          "fraction such as data.valid_fraction: 0.05");
  }
  config.train.eval_every = 0;
}

void check_schedule(const Settings& settings, const Config& config) {
  const ScheduleConfig& schedule = config.optim.schedule;
  if (schedule.stable_steps != 0 && schedule.kind != ScheduleKind::kWsd) {
    settings.refuse(config, "optim.schedule.stable_steps",
                    "only optim.schedule.kind wsd has stable steps: write 0, or kind: wsd");
  }
  const std::int64_t start = schedule.warmup_steps + schedule.stable_steps;
  if (schedule.decay_steps != 0 && schedule.decay_steps <= start) {
    settings.refuse(config, "optim.schedule.decay_steps",
                    "the step at which the decay ends must come after warmup_steps + "
                    "stable_steps = " +
                        std::to_string(start) + ": write more than " + std::to_string(start) +
                        ", or 0 for no decay");
  }
  const bool decays = schedule.kind != ScheduleKind::kConstant && schedule.decay_steps != 0;
  if (decays && schedule.min_lr > config.optim.lr) {
    settings.refuse(config, "optim.schedule.min_lr",
                    "above optim.lr, so the rate would rise: write at most " +
                        yaml::number_text(config.optim.lr));
  }
}

}  // namespace

void resolve(const Settings& settings, std::optional<int> launched_ranks, Config& config) {
  derive_dp(settings, launched_ranks, config);
  check_idle_keys(settings, config);
  check_model(settings, config);
  check_batch(settings, config);
  resolve_evaluation(settings, config);
  check_schedule(settings, config);
}

}  // namespace tandem
