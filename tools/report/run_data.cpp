#include "tools/report/run_data.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "core/error.h"
#include "core/yaml.h"

namespace tandem::report {

namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// The numbers that the page shows; a line's others are left where they are.
constexpr std::array kColumns = {"step",          "loss",     "grad_norm",     "lr",
                                 "tokens",        "step_ms",  "data_ms",       "tokens_per_s",
                                 "roof_fraction", "mfu",      "skipped_steps", "comm_exposed_ms",
                                 "loss_scale",    "elapsed_s"};

std::optional<std::string> read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    return std::nullopt;
  }
  return text.str();
}

double number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : kNaN;
}

/// 0 for what is no whole number.
std::int64_t whole(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() &&
                 found->get<std::uint64_t>() <= INT64_MAX
             ? found->get<std::int64_t>()
             : 0;
}

std::string text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

void flatten(const yaml::Node& node, const std::string& path, Rows& rows) {
  if (node.kind == yaml::Kind::kMap) {
    for (const yaml::Entry& entry : node.entries) {
      flatten(entry.value, path.empty() ? entry.key : path + "." + entry.key, rows);
    }
  } else if (node.kind == yaml::Kind::kSequence) {
    std::string items;
    for (const yaml::Node& item : node.items) {
      items += (items.empty() ? "" : ", ") + item.text;
    }
    rows.emplace_back(path, "[" + items + "]");
  } else {
    rows.emplace_back(path, node.text);
  }
}

/// A step that is there already was taken again: the newer line counts, and what followed the older
/// one does not.
void forget_from(RunData& run, double step) {
  auto& steps = run.steps["step"];
  const auto keep =
      static_cast<std::size_t>(std::lower_bound(steps.begin(), steps.end(), step) - steps.begin());
  for (auto& [name, values] : run.steps) {
    values.resize(keep);
  }
}

void add_line(RunData& run, const json& line) {
  const double step = number(line, "step");
  if (line.contains("warning")) {
    run.warnings.push_back({step, text(line, "warning"), text(line, "text")});
    return;
  }
  if (line.contains("valid_loss")) {
    while (!run.evaluation_steps.empty() && run.evaluation_steps.back() >= step) {
      run.evaluation_steps.pop_back();
      run.evaluation_losses.pop_back();
    }
    run.evaluation_steps.push_back(step);
    run.evaluation_losses.push_back(number(line, "valid_loss"));
    return;
  }
  if (run.count() > 0 && run.column("step").back() >= step) {
    forget_from(run, step);
  }
  const auto& elapsed = run.column("elapsed_s");
  const double before = elapsed.empty() ? 0.0 : elapsed.back();
  const double seconds = number(line, "step_ms") / 1e3;
  for (auto& [name, values] : run.steps) {
    values.push_back(number(line, name.c_str()));
  }
  run.steps["elapsed_s"].back() = before + (seconds > 0.0 ? seconds : 0.0);
}

void read_metrics(RunData& run, const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    run.notes.emplace_back("There is no metrics.jsonl: no step has been written yet.");
    return;
  }
  std::size_t unreadable = 0;
  for (std::string line; std::getline(in, line);) {
    const bool whole = !in.eof();
    const json parsed = json::parse(line, nullptr, false);
    if (parsed.is_object() && std::isfinite(number(parsed, "step"))) {
      add_line(run, parsed);
    } else if (whole && !line.empty()) {  // one without an end is being written
      ++unreadable;
    }
  }
  if (unreadable > 0) {
    run.notes.push_back(fmt::format("{} line{} of metrics.jsonl cannot be read and {} left out.",
                                    unreadable, unreadable == 1 ? "" : "s",
                                    unreadable == 1 ? "is" : "are"));
  }
  if (run.count() == 0) {
    run.notes.emplace_back("metrics.jsonl has no step yet.");
  }
}

void read_config(RunData& run, const fs::path& file) {
  const std::optional<std::string> text = read_text(file);
  if (!text) {
    run.notes.emplace_back("There is no config.yaml.");
    return;
  }
  run.config_text = *text;
  try {
    flatten(yaml::parse(*text, {.name = file.string()}), "", run.config);
  } catch (const ConfigError& error) {
    run.notes.push_back(fmt::format("The config cannot be read: {}.", error.what()));
  }
}

/// A file of one JSON object; null if it is missing, or with a note if it is not that.
json read_object(RunData& run, const fs::path& file) {
  const std::optional<std::string> text = read_text(file);
  if (!text) {
    return {};
  }
  json parsed = json::parse(*text, nullptr, false);
  if (!parsed.is_object()) {
    run.notes.push_back(fmt::format("{} cannot be read.", file.filename().string()));
    return {};
  }
  return parsed;
}

void read_facts(RunData& run, const fs::path& file) {
  const json facts = read_object(run, file);
  if (const auto startup = facts.find("startup"); startup != facts.end() && startup->is_object()) {
    for (const auto& [label, value] : startup->items()) {
      run.startup.emplace_back(label, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  if (const auto memory = facts.find("memory_bytes");
      memory != facts.end() && memory->is_object()) {
    for (const auto& [category, bytes] : memory->items()) {
      if (bytes.is_number()) {
        run.memory.emplace_back(category, bytes.get<double>());
      }
    }
  }
}

void read_traffic(RunData& run, const fs::path& file) {
  const json totals = read_object(run, file);
  if (totals.is_null()) {
    return;
  }
  const auto lines = totals.find("labels");
  run.traffic.first_step = whole(totals, "first_step");
  run.traffic.last_step = whole(totals, "last_step");
  if (lines == totals.end() || !lines->is_array() || run.traffic.first_step == 0 ||
      run.traffic.last_step < run.traffic.first_step) {
    run.traffic = {};
    run.notes.push_back(fmt::format("{} cannot be read.", file.filename().string()));
    return;
  }
  run.traffic.micro_batches = whole(totals, "micro_batches");
  run.traffic.rows = whole(totals, "rows");
  if (const auto phases = totals.find("phases"); phases != totals.end() && phases->is_array()) {
    for (const json& phase : *phases) {
      if (phase.is_object()) {
        run.traffic.phases.push_back(
            {text(phase, "phase"), number(phase, "calls"), number(phase, "ms")});
      }
    }
  }
  for (const json& line : *lines) {
    if (line.is_object()) {
      run.traffic.lines.push_back({.phase = text(line, "phase"),
                                   .group = text(line, "group"),
                                   .op = text(line, "op"),
                                   .dtype = text(line, "dtype"),
                                   .label = text(line, "label"),
                                   .ranks = whole(line, "ranks"),
                                   .calls = number(line, "calls"),
                                   .bytes = number(line, "bytes"),
                                   .sent_bytes = number(line, "sent_bytes"),
                                   .ms = number(line, "ms"),
                                   .exposed_ms = number(line, "exposed_ms")});
    }
  }
}

}  // namespace

const std::vector<double>& RunData::column(std::string_view key) const {
  const auto found = steps.find(key);
  ensure(found != steps.end(), "a column that is not read");
  return found->second;
}

std::string RunData::setting(std::string_view key) const {
  const auto found =
      std::find_if(config.begin(), config.end(), [&](const auto& row) { return row.first == key; });
  return found == config.end() ? "" : found->second;
}

RunData read_run(const fs::path& directory) {
  std::error_code unreadable;
  if (!fs::is_directory(directory, unreadable)) {
    throw ConfigError(fmt::format(
        "{}: there is no such directory. Name what a run left, <log.dir>/<name>, as its last lines "
        "said.",
        directory.string()));
  }
  if (!fs::exists(directory / "metrics.jsonl", unreadable) &&
      !fs::exists(directory / "config.yaml", unreadable)) {
    throw ConfigError(
        fmt::format("{}: is not a run directory: it has neither config.yaml nor metrics.jsonl",
                    directory.string()));
  }
  RunData run;
  run.directory = directory.string();
  run.name = fs::absolute(directory / ".").lexically_normal().parent_path().filename().string();
  for (const char* name : kColumns) {
    run.steps[name];
  }
  read_config(run, directory / "config.yaml");
  read_metrics(run, directory / "metrics.jsonl");
  read_facts(run, directory / "run.json");
  read_traffic(run, directory / "traffic.json");
  return run;
}

void tell_apart(std::vector<RunData>& runs) {
  std::map<std::string, int> uses;
  for (const RunData& run : runs) {
    ++uses[run.name];
  }
  for (RunData& run : runs) {
    if (uses[run.name] > 1) {
      run.name = run.directory;
    }
  }
}

}  // namespace tandem::report
