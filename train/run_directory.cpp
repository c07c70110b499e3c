#include "train/run_directory.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>

#include "core/safetensors.h"
#include "train/checkpoint/folder.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kTraffic = "traffic.json";
constexpr const char* kFacts = "run.json";
constexpr const char* kEvents = "tensorboard";

/// JSON has no NaN or infinity.
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

/// Moves the metrics of an earlier run to the first free metrics.N.jsonl, and TensorBoard's with
/// them.
void keep_old_metrics(const fs::path& directory) {
  const auto old_metrics = [&](int n) { return directory / fmt::format("metrics.{}.jsonl", n); };
  const auto old_events = [&](int n) { return directory / fmt::format("{}.{}", kEvents, n); };
  int n = 1;
  while (fs::exists(old_metrics(n)) || fs::exists(old_events(n))) {
    ++n;
  }
  if (fs::exists(directory / kMetrics)) {
    fs::rename(directory / kMetrics, old_metrics(n));
  }
  if (fs::exists(directory / kEvents)) {
    fs::rename(directory / kEvents, old_events(n));
  }
}

/// Leaves the lines of steps up to `last`: those behind it are of steps that are taken again.
void cut_metrics(const fs::path& directory, std::int64_t last) {
  std::ifstream in(directory / kMetrics);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);  // the last may be cut off
    const auto step = json.is_object() ? json.find("step") : json.end();
    if (json.is_object() && step != json.end() && step->is_number() &&
        step->get<double>() <= static_cast<double>(last)) {
      kept += line + "\n";
    }
  }
  if (in.is_open()) {
    const fs::path beside = directory / fmt::format("{}.unfinished", kMetrics);
    write_durably(beside, kept);
    fs::rename(beside, directory / kMetrics);
  }
}

}  // namespace

fs::path run_path(const Config& config) { return fs::path(config.log.dir) / config.name; }

RunDirectory::RunDirectory(const Config& config, const Logger& log,
                           std::optional<std::int64_t> resumed)
    : path_(run_path(config)), log_(log) {
  try {
    fs::create_directories(path_);
    if (resumed) {
      // First: once the metrics are cut, nobody is to go on from a newer one.
      CheckpointFolder(path_).name_latest(*resumed);
      CheckpointFolder(path_).discard_unfinished();
      cut_metrics(path_, *resumed);
    } else {
      keep_old_metrics(path_);
      CheckpointFolder(path_).set_aside();
    }
    if (config.log.tensorboard) {
      events_.emplace(path_ / kEvents, resumed);
    }
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  } catch (const fs::filesystem_error& error) {
    throw ConfigError(fmt::format(
        "log.dir: {}: the run directory cannot be made there ({}). Name a directory that can be "
        "written.",
        config.log.dir, error.code().message()));
  }
  std::error_code there_was_none;
  fs::remove(path_ / kTraffic, there_was_none);
  std::ofstream yaml(path_ / "config.yaml");
  yaml << to_yaml(config);
  yaml.close();
  metrics_.open(path_ / kMetrics, std::ios::app);
  if (!yaml || !metrics_) {
    throw ConfigError(
        fmt::format("log.dir: {}: cannot write there ({}). Name a directory that can be written.",
                    path_.string(), std::strerror(errno)));
  }
}

void RunDirectory::write(const StepResult& step, const StepSpeed& speed) {
  write_line(fmt::format(
      R"({{"step": {}, "loss": {}, "grad_norm": {}, "lr": {}, "tokens": {}, "rows": {}, "consumed_samples": {}, )"
      R"("step_ms": {:.3f}, "data_ms": {:.3f}, "tokens_per_s": {:.1f}, "tflops_per_rank": {}, )"
      R"("roof_fraction": {}, {}"comm_calls": {}, "comm_bytes": {}, "comm_ms": {:.3f}, )"
      R"("comm_exposed_ms": {:.3f}, "skipped_steps": {}, "loss_scale": {}}})",
      step.step, step.outcome == StepOutcome::kNoTokens ? "null" : number(step.loss),
      step.outcome == StepOutcome::kNoTokens ? "null" : number(step.grad_norm), number(step.lr),
      step.tokens, step.rows, step.consumed_samples, step.seconds * 1e3, step.data_seconds * 1e3,
      speed.tokens_per_s, number(speed.tflops_per_rank), number(speed.roof_fraction),
      speed.utilization
          ? fmt::format(R"("mfu": {}, "mfu_peak_tflops": {}, )", number(speed.utilization->mfu),
                        number(speed.utilization->peak_tflops))
          : "",
      speed.comm_calls, speed.comm_bytes, speed.comm_ms, speed.comm_exposed_ms, step.skipped_steps,
      number(step.loss_scale)));
  if (step.outcome != StepOutcome::kNoTokens) {
    write_events(step.step, {{"loss", step.loss}, {"grad_norm", step.grad_norm}, {"lr", step.lr}});
  }
  write_events(step.step, {{"speed/step_ms", step.seconds * 1e3},
                           {"speed/tokens_per_s", speed.tokens_per_s},
                           {"speed/roof_fraction", speed.roof_fraction},
                           {"speed/comm_exposed_ms", speed.comm_exposed_ms}});
}

void RunDirectory::write(std::int64_t step, const EvaluationResult& evaluation) {
  write_line(fmt::format(R"({{"step": {}, "valid_loss": {}, "valid_tokens": {}}})", step,
                         number(evaluation.loss), evaluation.tokens));
  write_events(step, {{"valid_loss", evaluation.loss}});
}

void RunDirectory::write(const RunWarning& warning) {
  write_line(fmt::format(R"({{"step": {}, "warning": "{}", "text": {}}})", warning.step,
                         warning.kind, nlohmann::json(warning.text).dump()));
}

void RunDirectory::write(const Table& table, const RankMemory& memory) {
  nlohmann::ordered_json startup, bytes;
  for (const auto& [label, value] : table.rows) {
    startup[label] = value;
  }
  for (const auto& [category, of_category] : categories(memory)) {
    bytes[std::string(category)] = of_category;
  }
  std::ofstream out(path_ / kFacts);
  out << nlohmann::ordered_json(
             {{"version", TANDEM_VERSION},
              {"started", fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))},
              {"startup", startup},
              {"memory_bytes", bytes}})
             .dump(2)
      << '\n';
  out.close();
  if (!out) {
    warn_once(kFacts);
  }
}

void RunDirectory::write(const Ledger& ledger, const Profiler& profiler,
                         const TrafficFacts& facts) {
  const StepRows& rows = facts.rows;
  const fs::path beside = path_ / fmt::format("{}.unfinished", kTraffic);
  std::ofstream out(beside);
  out << fmt::format(R"({{"rank": {}, "tp": {}, "dp": {}, "first_step": {}, "last_step": {}, )"
                     R"("micro_batches": {}, "rows": {}, "phases": [)",
                     facts.layout.rank, facts.layout.tp, facts.layout.dp, facts.first_step,
                     facts.last_step, rows.micro_batches, rows.rows);
  const char* separator = "\n";
  for (const Profiler::Phase& phase : profiler.phases()) {
    out << fmt::format(R"({}  {{"phase": "{}", "calls": {}, "ms": {:.3f}}})", separator,
                       profiler.path(phase), phase.calls, phase.seconds * 1e3);
    separator = ",\n";
  }
  out << "\n], \"labels\": [";
  for (std::size_t i = 0; i < ledger.lines().size(); ++i) {
    const Ledger::Line& line = ledger.lines()[i];
    const auto& [key, calls, bytes] = line.traffic;
    out << fmt::format(
        R"({}  {{"phase": "{}", "group": "{}", "ranks": {}, "op": "{}", "dtype": "{}", )"
        R"("label": {}, "calls": {}, "bytes": {}, "sent_bytes": {:.0f}, "ms": {:.3f}, )"
        R"("exposed_ms": {:.3f}}})",
        i == 0 ? "\n" : ",\n", name_of(key.phase), key.group.view(), key.ranks, name_of(key.op),
        name_of(key.dtype), nlohmann::json(key.label.view()).dump(), calls, bytes,
        sent_bytes(key.op, static_cast<double>(bytes), key.ranks), line.seconds * 1e3,
        line.exposed_seconds * 1e3);
  }
  out << "\n]}\n";
  out.close();
  std::error_code problem;
  if (out) {
    fs::rename(beside, path_ / kTraffic, problem);
  }
  if (!out || problem) {
    warn_once(kTraffic);
  }
}

void RunDirectory::write_line(const std::string& line) {
  metrics_ << line << '\n' << std::flush;
  if (!metrics_) {
    warn_once(kMetrics);
  }
}

void RunDirectory::write_events(std::int64_t step, std::initializer_list<Scalar> scalars) {
  if (events_) {
    events_->add(step, scalars);
    if (!events_->good()) {
      warn_once(kEvents);
    }
  }
}

void RunDirectory::warn_once(const std::string& file) {
  if (warned_.insert(file).second) {
    log_.warn(fmt::format("{}: cannot be written ({}); the run goes on without it",
                          (path_ / file).string(), std::strerror(errno)));
  }
}

}  // namespace tandem
