#include "train/config_settings.h"

#include <utility>

#include "core/error.h"

namespace tandem {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// "optim.schedule.kind" as it is nested in a file: "optim: {schedule: {kind: ...}}".
std::string nested(const std::string& path) {
  std::string out;
  std::string closing;
  for (const char c : path) {
    if (c == '.') {
      out += ": {";
      closing += '}';
    } else {
      out += c;
    }
  }
  return out + ": ..." + closing;
}

}  // namespace

Settings::Settings(std::string_view text, const std::string& file,
                   const std::vector<std::string>& overrides)
    : file_(file) {
  const yaml::Source source{file};
  const yaml::Node root = yaml::parse(text, source);
  if (root.kind != yaml::Kind::kNull && root.kind != yaml::Kind::kMap) {
    throw ConfigError(source.at(root.line, root.column) +
                      ": a config is a map of keys: write `key: value` lines, with a space after "
                      "the colon");
  }
  apply_map(root, "", source);
  for (const std::string& override_text : overrides) apply_override(override_text);
}

void Settings::apply_override(const std::string& text) {
  const yaml::Source source{"--set " + text, false};
  const std::size_t equals = text.find('=');
  const std::string path = trimmed(text.substr(0, equals));
  if (equals == std::string::npos || path.empty()) {
    throw ConfigError(source.name + ": write --set key.path=value, such as --set parallel.tp=2");
  }
  apply(path, yaml::parse(text.substr(equals + 1), source), source, source.name);
}

void Settings::apply_map(const yaml::Node& map, const std::string& prefix,
                         const yaml::Source& source) {
  for (const yaml::Entry& entry : map.entries) {
    const std::string key_where = source.at(entry.line, entry.column);
    if (entry.key.find('.') != std::string::npos) {
      const std::string path = prefix + entry.key;
      const bool known = find_key(path) != nullptr || is_section(path);
      throw ConfigError(
          key_where + ": unknown key " + path + ": " +
          (known ? "keys are nested here, write " + nested(path) : suggest_key(path)));
    }
    apply(prefix + entry.key, entry.value, source, key_where);
  }
}

void Settings::apply(const std::string& path, const yaml::Node& node, const yaml::Source& source,
                     const std::string& key_where) {
  const bool is_null = node.kind == yaml::Kind::kNull;
  if (find_key(path) != nullptr) {
    values_.erase(path);
    if (is_null) return;
    values_[path] = {node, source.at(node.line, node.column), !source.is_file};
  } else if (!is_section(path)) {
    throw ConfigError(key_where + ": unknown key " + path + ": " + suggest_key(path));
  } else if (is_null) {
    std::erase_if(values_, [&](const auto& item) { return item.first.starts_with(path + "."); });
  } else if (node.kind == yaml::Kind::kMap) {
    apply_map(node, path + ".", source);
  } else {
    yaml::refuse({source.at(node.line, node.column), path, node},
                 "it is a map of keys: write " + path + ": {key: value, ...}");
  }
}

Config Settings::read() const {
  Config config;
  for (const SchemaKey& key : config_schema()) {
    const auto found = values_.find(key.path);
    if (found == values_.end()) continue;
    key.read({found->second.where, key.path, found->second.node}, config);
  }
  return config;
}

void Settings::refuse(const Config& config, const std::string& path, const std::string& why) const {
  const auto found = values_.find(path);
  const bool set = found != values_.end();
  throw ConfigError((set ? found->second.where : file_) + ": " + path + " = " +
                    find_key(path)->write(config) + (set ? "" : " (the default)") + ": " + why);
}

std::string Settings::removal(const std::string& path) const {
  const auto found = values_.find(path);
  const bool by_override = found != values_.end() && found->second.from_override;
  return by_override ? "leave it out" : "remove it, or give --set " + path + "=null";
}

}  // namespace tandem
