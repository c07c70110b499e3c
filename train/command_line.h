// The command line that all programs share, and the few options of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct CommandLine {
  std::string config;
  std::vector<std::string> overrides;  ///< --set, in order
  std::string json;                    ///< --json FILE; empty for none
  std::optional<std::int64_t> steps;   ///< train: the absolute last step
  bool dry_run = false;                ///< train: start-up table, then exit
  std::string import_file;             ///< train: weights to start from; empty for none
  std::string export_file;             ///< train: where the newest checkpoint goes; empty for none
  bool full = false;                   ///< verify: do not cut the batch
  bool grid = false;
  std::string mode;                   ///< bench: what to measure
  std::vector<std::string> runs;      ///< report: run directories
  std::string output;                 ///< report, bench hardware: -o FILE; empty for the default
  std::optional<std::int64_t> world;  ///< plan: ranks to plan for
  std::string hardware;               ///< plan, report: a name or a file
  std::string against;                ///< plan: a run directory, whose config it takes
};

/// What a program's --help says and which options it has beside --config and --set. Help fits 80
/// columns if the examples do.
struct ProgramDescription {
  std::string name;
  std::string purpose;
  std::vector<std::string> examples;  ///< two lines that work as they stand
  bool has_steps = false;
  bool has_dry_run = false;
  bool has_weight_files = false;  ///< --import and --export
  bool has_full = false;
  bool has_grid = false;
  bool has_plan = false;  ///< --world, --hardware and --against
  bool has_json = false;
  bool reads_runs = false;         ///< run directories and -o instead of --config and --set
  std::vector<std::string> modes;  ///< subcommands; one of them is required
  /// What stands in for --config where none is named, as YAML; empty: it is required.
  std::string default_config = {};
  bool has_output = false;  ///< -o beside --config
};

/// Thrown for --help and --version: text for stdout, exit 0.
struct HelpRequested {
  std::string text;
};

/// Throws ConfigError for what the program does not know.
CommandLine parse_command_line(const ProgramDescription& program, int argc,
                               const char* const* argv);

}  // namespace tandem
