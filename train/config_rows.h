// Rows of the config schema by the type of their value: how it is read, checked and written. Only
// config_schema.cpp, which holds the table, includes this.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/yaml.h"
#include "train/config_schema.h"

namespace tandem {

inline std::string alternatives(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " | ") + word;
  return out;
}

/// The default text of a row is what its writer makes of a default config.
inline SchemaKey finish(SchemaKey key) {
  if (key.default_text.empty()) key.default_text = key.write(Config{});
  return key;
}

struct IntegerRange {
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int32_t>::max();
};

/// Where a value lives in a Config, const or not.
template <typename Value>
auto of(Value Config::*value) {
  return [value](auto& config) -> auto& { return config.*value; };
}
template <typename Section, typename Value>
auto of(Section Config::*section, Value Section::*value) {
  return [ section, value ](auto& config) -> auto& { return config.*section.*value; };
}
template <typename Value>
auto of_schedule(Value ScheduleConfig::*value) {
  return [value](auto& config) -> auto& { return config.optim.schedule.*value; };
}

/// Rows by the type of their value; `at` says where it lives.
template <typename At>
SchemaKey integer(std::string path, At at, IntegerRange range, std::string help) {
  SchemaKey key;
  key.path = std::move(path);
  key.type = "integer >= " + std::to_string(range.least);
  key.help = std::move(help);
  key.read = [at, range](const yaml::Field& field, Config& config) {
    auto& value = at(config);
    value = static_cast<std::remove_reference_t<decltype(value)>>(
        yaml::read_integer(field, range.least, range.most));
  };
  key.write = [at](const Config& config) { return std::to_string(at(config)); };
  return finish(std::move(key));
}

template <typename At>
SchemaKey number(std::string path, At at, std::string range, bool (*accepts)(double),
                 std::string help) {
  SchemaKey key;
  key.path = std::move(path);
  key.type = "number " + range;
  key.help = std::move(help);
  key.read = [at, range, accepts](const yaml::Field& field, Config& config) {
    at(config) = yaml::read_number(field, range, accepts);
  };
  key.write = [at](const Config& config) { return yaml::number_text(at(config)); };
  return finish(std::move(key));
}

template <typename At>
SchemaKey boolean(std::string path, At at, std::string help) {
  SchemaKey key;
  key.path = std::move(path);
  key.type = "boolean";
  key.help = std::move(help);
  key.read = [at](const yaml::Field& field, Config& config) {
    at(config) = yaml::read_bool(field);
  };
  key.write = [at](const Config& config) { return at(config) ? "true" : "false"; };
  return finish(std::move(key));
}

template <typename At>
SchemaKey text(std::string path, At at, std::string help) {
  SchemaKey key;
  key.path = std::move(path);
  key.type = "text";
  key.help = std::move(help);
  key.read = [at](const yaml::Field& field, Config& config) {
    at(config) = yaml::read_string(field);
    if (at(config).empty()) yaml::refuse(field, "empty: write a path");
  };
  key.write = [at](const Config& config) { return yaml::string_text(at(config)); };
  return finish(std::move(key));
}

template <typename Enum>
using Choices = std::vector<std::pair<std::string, Enum>>;

/// One of `choices`.
template <typename Enum, typename At>
SchemaKey choice(std::string path, At at, Choices<Enum> choices, std::string help) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  SchemaKey key;
  key.path = std::move(path);
  key.type = alternatives(words);
  key.help = std::move(help);
  key.read = [at, choices, words](const yaml::Field& field, Config& config) {
    const std::string word = yaml::read_string(field);
    for (const auto& [name, value] : choices) {
      if (name == word) {
        at(config) = value;
        return;
      }
    }
    yaml::refuse(field, "unknown: write one of " + alternatives(words));
  };
  key.write = [at, choices](const Config& config) {
    for (const auto& [word, value] : choices) {
      if (value == at(config)) return word;
    }
    return std::string();
  };
  return finish(std::move(key));
}

}  // namespace tandem
