// What a file and its overrides set, before it is read: each known key path with its YAML value and
// its place, so that every later error can name where a value came from.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/yaml.h"
#include "train/config_schema.h"

namespace tandem {

class Settings {
 public:
  /// Throws ConfigError for bad YAML, unknown keys, and maps and values that took each other's
  /// place.
  Settings(std::string_view text, const std::string& file,
           const std::vector<std::string>& overrides);

  bool is_set(const std::string& path) const { return values_.count(path) != 0; }

  /// The defaults with everything that is set read into them.
  Config read() const;

  /// Throws ConfigError about the value that `path` has in `config`, set or by default.
  [[noreturn]] void refuse(const Config& config, const std::string& path,
                           const std::string& why) const;

  /// How to take a setting back, e.g. "remove it".
  std::string removal(const std::string& path) const;

 private:
  struct Setting {
    yaml::Node node;
    std::string where;
    bool from_override = false;
  };

  void apply_override(const std::string& text);
  void apply_map(const yaml::Node& map, const std::string& prefix, const yaml::Source& source);
  void apply(const std::string& path, const yaml::Node& node, const yaml::Source& source,
             const std::string& key_where);

  std::string file_;
  std::map<std::string, Setting> values_;
};

/// Ranges that span several keys. `launched_ranks` as in ConfigSource; derives what follows from
/// other keys. Throws ConfigError.
void resolve(const Settings& settings, std::optional<int> launched_ranks, Config& config);

}  // namespace tandem
