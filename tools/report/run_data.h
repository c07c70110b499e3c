// What a run directory holds, as far as it can be read: every file may be missing, and the newest
// line of metrics half-written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::report {

using Rows = std::vector<std::pair<std::string, std::string>>;

/// Totals of one label of traffic.json, of the steps that it covers.
struct TrafficLine {
  std::string phase, group, op, dtype, label;
  std::int64_t ranks = 0;
  double calls = 0.0, bytes = 0.0, sent_bytes = 0.0, ms = 0.0, exposed_ms = 0.0;
};

/// Of a named range of the host's: "step/micro-batch/forward".
struct PhaseTotal {
  std::string path;
  double calls = 0.0, ms = 0.0;
};

struct TrafficTotals {
  std::int64_t first_step = 0, last_step = 0;  ///< 0 where there is no file
  std::int64_t micro_batches = 0, rows = 0;    ///< of rank 0 in these steps
  std::vector<TrafficLine> lines;              ///< one rank has none
  std::vector<PhaseTotal> phases;              ///< parents before children

  double steps() const { return static_cast<double>(last_step - first_step + 1); }
};

/// What a run found unusual.
struct Warning {
  double step = 0.0;
  std::string kind, text;
};

struct RunData {
  std::string name;       ///< unlike that of any other run on the page
  std::string directory;  ///< as it was given
  Rows config;            ///< resolved, "parallel.tp" -> "2"
  std::string config_text;
  /// A value per step: "step" and every other number of metrics.jsonl, NaN where a line has none;
  /// and "elapsed_s", the training time up to it.
  std::map<std::string, std::vector<double>, std::less<>> steps;
  /// "step", "valid_loss": a value per evaluation.
  std::vector<double> evaluation_steps, evaluation_losses;
  std::vector<Warning> warnings;
  TrafficTotals traffic;
  Rows startup;                                        ///< of run.json: the start-up table
  std::vector<std::pair<std::string, double>> memory;  ///< of run.json: bytes by category
  std::vector<std::string> notes;                      ///< what is missing or cannot be read

  std::size_t count() const { return column("step").size(); }
  /// All NaN where metrics.jsonl has no such number.
  const std::vector<double>& column(std::string_view key) const;
  /// Empty where the config has no such key.
  std::string setting(std::string_view key) const;
};

/// Throws ConfigError if `directory` is not a run directory.
RunData read_run(const std::filesystem::path& directory);
/// Gives runs of the same name a longer one.
void tell_apart(std::vector<RunData>& runs);

}  // namespace tandem::report
