// What a run leaves in <log.dir>/<name>/: the resolved config, what the run is and where it runs,
// and one line of metrics per step, for TensorBoard too if it was asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>

#include "core/log.h"
#include "core/profiler.h"
#include "parallel/layout.h"
#include "parallel/ledger.h"
#include "train/config.h"
#include "train/memory.h"
#include "train/run_speed.h"
#include "train/table.h"
#include "train/tensorboard.h"
#include "train/traffic.h"

namespace tandem {

/// What the totals of a ledger are of.
struct TrafficFacts {
  Layout layout;
  std::int64_t first_step = 0, last_step = 0;  ///< of this start of the run
  StepRows rows;                               ///< of all these steps together
};

/// Something unusual that a run tells of, docs/failures.md.
struct RunWarning {
  std::int64_t step = 0;  ///< 0: before the first
  std::string kind;       ///< a word
  std::string text;
};

/// Where a run leaves what it leaves.
std::filesystem::path run_path(const Config& config);

/// Rank 0's. A run that starts afresh keeps the metrics of an earlier one in the same place as
/// metrics.1.jsonl and tensorboard.1, and its checkpoints as checkpoints.1, and so on; one that
/// goes on from step `resumed` cuts the metrics behind it.
class RunDirectory {
 public:
  /// Creates the directory and writes config.yaml; throws ConfigError if it cannot.
  RunDirectory(const Config& config, const Logger& log, std::optional<std::int64_t> resumed);

  const std::filesystem::path& path() const { return path_; }
  void write(const StepResult& step, const StepSpeed& speed);
  void write(std::int64_t step, const EvaluationResult& evaluation);
  void write(const RunWarning& warning);
  /// run.json: the start-up table, and a rank's memory by category.
  void write(const Table& table, const RankMemory& memory);
  /// traffic.json, anew: what rank 0's collectives came to, label by label, and the time of its
  /// phases.
  void write(const Ledger& ledger, const Profiler& profiler, const TrafficFacts& facts);

 private:
  void write_line(const std::string& line);
  void write_events(std::int64_t step, std::initializer_list<Scalar> scalars);
  void warn_once(const std::string& file);

  std::filesystem::path path_;
  Logger log_;
  std::ofstream metrics_;
  std::optional<EventFile> events_;
  std::set<std::string> warned_;  ///< of these files
};

}  // namespace tandem
