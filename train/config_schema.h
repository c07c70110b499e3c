// The schema of the config as one table: a row per key, from which reading, writing, suggestions
// and the reference list all come. A new key is one row in config_schema.cpp (and its line in
// configs/reference.yaml and docs/config.md, which a test asks for).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/yaml.h"
#include "train/config.h"

namespace tandem {

struct SchemaKey {
  std::string path;
  std::string type;          ///< e.g. "integer >= 1"
  std::string default_text;  ///< YAML, or words in parentheses where it depends on other things
  std::string help;
  std::function<void(const yaml::Field&, Config&)> read;
  std::function<std::string(const Config&)> write;  ///< the value as YAML text
  /// Why the key means nothing in this config and is then refused; absent if it always counts.
  std::function<std::string_view(const Config&)> idle;
};

/// Every key in the order in which it is written.
const std::vector<SchemaKey>& config_schema();

/// The row of `path`, or nullptr.
const SchemaKey* find_key(std::string_view path);

/// Whether `path` is a map of keys, such as "optim.schedule".
bool is_section(std::string_view path);

/// What to write instead of the unknown key `path`, as the end of a sentence: the nearest key, the
/// right section, or what a key of another framework is called here.
std::string suggest_key(const std::string& path);

/// The candidate nearest to `text` by edit distance, empty if none is near.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace tandem
