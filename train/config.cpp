#include "train/config.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "core/error.h"
#include "train/config_schema.h"
#include "train/config_settings.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

/// The places where `file` is sought, in order.
std::vector<fs::path> places(const std::string& file) {
  if (file.find('/') != std::string::npos) return {file};
  const fs::path folder = "configs";
  if (file.ends_with(".yaml")) return {file, folder / file};
  return {file, folder / file, file + ".yaml", folder / (file + ".yaml")};
}

/// " did you mean configs/x.yaml?", or nothing.
std::string similar_file(const std::string& file) {
  const fs::path wanted(file);
  const fs::path folder = wanted.has_parent_path() ? wanted.parent_path() : fs::path("configs");
  std::vector<std::string> stems;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".yaml") stems.push_back(entry.path().stem().string());
  }
  const std::string near = nearest(wanted.stem().string(), stems);
  return near.empty() ? "" : "; did you mean " + (folder / (near + ".yaml")).string() + "?";
}

fs::path find_file(const std::string& file) {
  if (file.empty()) throw ConfigError("no config: give one with --config FILE");
  std::string sought;
  std::string folder;
  for (const fs::path& place : places(file)) {
    std::error_code ignored;
    const fs::file_status status = fs::status(place, ignored);
    if (fs::exists(status) && !fs::is_directory(status)) return place;
    if (fs::is_directory(status)) folder = place.string();
    sought += (sought.empty() ? "" : ", ") + place.string();
  }
  if (!folder.empty()) {
    throw ConfigError(folder + ": is a folder: name a config file, such as " +
                      (fs::path(folder) / "config.yaml").string());
  }
  throw ConfigError(file + ": no such config file (sought " + sought + ")" + similar_file(file));
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw ConfigError(path.string() + ": cannot be read: check its permissions");
  return text;
}

}  // namespace

Config parse_config(std::string_view text, const ConfigSource& source) {
  const Settings settings(text, source.file, source.overrides);
  Config config = settings.read();
  if (!settings.is_set("name")) config.name = fs::path(source.file).stem().string();
  resolve(settings, source.launched_ranks, config);
  return config;
}

Config load_config(const ConfigSource& source) {
  const fs::path path = find_file(source.file);
  ConfigSource found = source;
  found.file = path.string();
  return parse_config(read_file(path), found);
}

std::string to_yaml(const Config& config) {
  std::string out;
  std::vector<std::string> open;  // sections of the line before
  for (const SchemaKey& key : config_schema()) {
    if (key.idle && !key.idle(config).empty()) continue;
    std::size_t start = 0;
    std::size_t depth = 0;
    for (std::size_t dot = key.path.find('.'); dot != std::string::npos;
         dot = key.path.find('.', start), ++depth) {
      const std::string section = key.path.substr(start, dot - start);
      if (depth >= open.size() || open[depth] != section) {
        open.resize(depth);
        open.push_back(section);
        out += std::string(2 * depth, ' ') + section + ":\n";
      }
      start = dot + 1;
    }
    open.resize(depth);
    out += std::string(2 * depth, ' ') + key.path.substr(start) + ": " + key.write(config) + "\n";
  }
  return out;
}

std::vector<ConfigKey> config_keys() {
  std::vector<ConfigKey> keys;
  for (const SchemaKey& key : config_schema()) {
    keys.push_back({key.path, key.type, key.default_text, key.help});
  }
  return keys;
}

std::pair<std::string, std::string> first_difference(const std::string& text,
                                                     const std::string& other) {
  std::istringstream lines(text), others(other);
  std::string line, there;
  do {
    line.clear();
    there.clear();
  } while (std::getline(lines, line) && std::getline(others, there) && line == there);
  return {line, there};
}

}  // namespace tandem
