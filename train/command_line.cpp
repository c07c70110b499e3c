#include "train/command_line.h"

#include <CLI/CLI.hpp>

#include <charconv>

#include "core/error.h"
#include "train/help.h"

namespace tandem {

CommandLine parse_command_line(const ProgramDescription& program, int argc,
                               const char* const* argv) {
  CommandLine line;
  const CLI::Validator whole_number(
      [](const std::string& text) {
        std::int64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, value);
        return parsed.ec == std::errc() && parsed.ptr == end && value >= 1 && value <= INT32_MAX
                   ? std::string()
                   : text + " is not a whole number: write 1 to 2147483647";
      },
      "");
  const CLI::Validator path(
      [](const std::string& text) {
        return text.empty() ? std::string("is empty: write the path of a file") : std::string();
      },
      "");
  CLI::App app(program.purpose, program.name);
  shape_help(app, program.examples);
  app.set_version_flag("--version", "tandem " TANDEM_VERSION, "print the version and exit");
  app.option_defaults()->always_capture_default(false);
  if (program.reads_runs) {
    app.add_option("runs", line.runs, "what runs left: <log.dir>/<name>")
        ->required()
        ->type_name("RUN_DIR")
        ->check(path);
  } else {
    auto* config = app.add_option(
        "--config", line.config,
        "YAML file; a bare name is also sought in configs/ (see configs/reference.yaml)");
    config->required(!program.has_plan && program.default_config.empty())->type_name("FILE");
    auto* set = app.add_option(
        "--set", line.overrides,
        "override a key, any number of times: --set parallel.tp=2 (the value is YAML)");
    set->type_name("KEY=VALUE")->allow_extra_args(false);
    if (program.has_plan) {
      auto* world = app.add_option("--world", line.world,
                                   "ranks to plan for, instead of the config's tp * dp");
      world->type_name("N")->check(whole_number);
      app.add_option("--against", line.against,
                     "hold this run's time and traffic against the prediction; takes its config")
          ->type_name("RUN_DIR")
          ->check(path)
          ->excludes(config)
          ->excludes(set)
          ->excludes(world);
    }
  }
  if (program.reads_runs || program.has_output) {
    app.add_option("-o,--output", line.output,
                   program.reads_runs ? "where the page goes" : "hardware: where the file goes")
        ->type_name("FILE")
        ->check(path);
  }
  if (program.has_steps) {
    app.add_option("--steps", line.steps, "the last step to take, instead of train.steps")
        ->type_name("N")
        ->check(whole_number);
  }
  if (program.has_full) {
    app.add_flag("--full", line.full, "do not cut the batch to what takes seconds");
  }
  if (program.has_grid) {
    app.add_flag("--grid", line.grid, "prove every layout of as many ranks, one line each");
  }
  if (program.has_dry_run) {
    app.add_flag("--dry-run", line.dry_run, "print the start-up table and stop");
  }
  if (program.has_weight_files) {
    auto* import = app.add_option("--import", line.import_file,
                                  "start from the weights in a safetensors file of whole tensors");
    import->type_name("FILE")->check(path);
    app.add_option("--export", line.export_file,
                   "write the newest checkpoint's weights as one safetensors file, and stop")
        ->type_name("FILE")
        ->check(path)
        ->excludes(import);
  }
  if (program.has_plan || program.reads_runs) {
    app.add_option(
           "--hardware", line.hardware,
           "h100, h200, a100, epyc_2cpu, xeon_2cpu, or a file; default: what `bench hardware` "
           "measured")
        ->type_name("NAME")
        ->check(path);
  }
  if (program.has_json) {
    app.add_option("--json", line.json, "also write the result to a file")
        ->type_name("FILE")
        ->check(path);
  }
  if (!program.modes.empty()) {
    std::string choices;
    for (const std::string& mode : program.modes) {
      choices += (choices.empty() ? "" : " | ") + mode;
    }
    app.add_option("mode", line.mode, "what to measure: " + choices)
        ->required()
        ->type_name("")
        ->check(CLI::IsMember(program.modes));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw HelpRequested{app.help()};
  } catch (const CLI::CallForVersion&) {
    throw HelpRequested{app.version() + "\n"};
  } catch (const CLI::ExtrasError&) {  // its own words are in reverse
    const std::vector<std::string> unknown = app.remaining();
    std::string words;
    for (const std::string& word : unknown) {
      words += " " + word;
    }
    throw ConfigError("not expected:" + words + "\nSee " + program.name + " --help.");
  } catch (const CLI::ParseError& problem) {
    throw ConfigError(std::string(problem.what()) + "\nSee " + program.name + " --help.");
  }
  return line;
}

}  // namespace tandem
