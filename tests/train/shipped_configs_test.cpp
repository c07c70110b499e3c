// What the repository ships beside the schema: configs/ and the pages that describe them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/yaml.h"
#include "train/config.h"
#include "train/data/source.h"
#include "train/state.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = TANDEM_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> shipped() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kRoot / "configs")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  return files;
}

void add_paths(const yaml::Node& map, const std::string& prefix, std::vector<std::string>& paths) {
  for (const yaml::Entry& entry : map.entries) {
    if (entry.value.kind == yaml::Kind::kMap) {
      add_paths(entry.value, prefix + entry.key + ".", paths);
    } else {
      paths.push_back(prefix + entry.key);
    }
  }
}

TEST(ShippedConfigs, LoadAndReadBackToTheSameRun) {
  ASSERT_GE(shipped().size(), 8U);
  for (const fs::path& file : shipped()) {
    const Config config = load_config({file.string(), {}, {}});
    EXPECT_EQ(parse_config(to_yaml(config), {"config.yaml", {}, {}}), config) << file;
    EXPECT_EQ(config.name, file.stem().string());
  }
}

TEST(ShippedConfigs, NamesSayTheLayout) {
  for (const fs::path& file : shipped()) {
    const std::string stem = file.stem().string();
    const std::size_t at = stem.find("_tp");
    if (at == std::string::npos) continue;
    const Config config = load_config({file.string(), {}, {}});
    EXPECT_EQ(stem.substr(at), "_tp" + std::to_string(config.parallel.tp) + "_dp" +
                                   std::to_string(config.parallel.dp));
  }
}

TEST(ShippedConfigs, LayoutsOfTheMainJobDifferInNothingElse) {
  Config main = load_config({(kRoot / "configs/ffn_tp2_dp2.yaml").string(), {}, {}});
  for (const char* name : {"ffn_tp1_dp1", "ffn_tp2_dp1", "ffn_tp1_dp2", "ffn_tp4_dp1"}) {
    const Config other =
        load_config({(kRoot / "configs" / (std::string(name) + ".yaml")).string(), {}, {}});
    main.name = other.name;
    main.parallel = other.parallel;
    EXPECT_EQ(other, main) << name;
  }
}

TEST(ShippedConfigs, ThoseForGpusDifferInTheLayoutOnlyAndFitIn40GiB) {
  Config one = load_config({(kRoot / "configs/gpu_1.yaml").string(), {}, {}});
  for (const int gpus : {1, 2, 4, 8}) {
    const std::string name = "gpu_" + std::to_string(gpus);
    const Config config = load_config({(kRoot / "configs" / (name + ".yaml")).string(), {}, gpus});
    EXPECT_EQ(config.world(), gpus);
    EXPECT_EQ(config.device, DeviceChoice::kCuda);
    one.name = config.name;
    one.parallel = config.parallel;
    EXPECT_EQ(config, one) << name;
    Arena measured;
    const TrainState state(config, {config.parallel.tp, config.parallel.dp, 0},
                           precision_of(config, DeviceKind::kCuda), max_rows(config), measured);
    EXPECT_LT(measured.total(), std::size_t{40} << 30) << name;
    EXPECT_GT(measured.total(), std::size_t{1} << 30) << name << " is worth a GPU";
  }
}

TEST(ReferenceConfig, NamesEveryKeyInOrderWithItsDefaultAndAComment) {
  const fs::path file = kRoot / "configs/reference.yaml";
  const std::string text = read(file);
  std::vector<std::string> named;
  add_paths(yaml::parse(text, {file.string()}), "", named);
  std::vector<std::string> keys;
  for (const ConfigKey& key : config_keys()) keys.push_back(key.path);
  EXPECT_EQ(named, keys);

  Config defaults;
  defaults.name = "reference";
  EXPECT_EQ(load_config({file.string(), {}, {}}), defaults);

  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool is_section = !line.empty() && line.back() == ':';
    EXPECT_TRUE(line.empty() || is_section || line.find('#') != std::string::npos) << line;
  }
}

TEST(ConfigPage, HasTheRowOfEveryKeyAndNoOther) {
  const std::string page = read(kRoot / "docs/config.md");
  // A bar inside a cell of a table is written \|.
  const auto escaped = [](const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '|') out += '\\';
      out += c;
    }
    return out;
  };
  for (const ConfigKey& key : config_keys()) {
    const bool words = key.default_text.front() == '(';
    const std::string shown = words ? key.default_text.substr(1, key.default_text.size() - 2)
                                    : "`" + key.default_text + "`";
    const std::string row = "| `" + key.path + "` | " + escaped(key.type) + " | " + shown + " | " +
                            escaped(key.help) + " |\n";
    EXPECT_THAT(page, testing::HasSubstr(row));
  }
  std::size_t rows = 0;
  for (std::size_t at = 0; (at = page.find("\n| `", at)) != std::string::npos; ++at) ++rows;
  const std::size_t strictness = page.find("## How strict");
  std::size_t others = 0;
  for (std::size_t at = strictness; (at = page.find("\n| `", at)) != std::string::npos; ++at) {
    ++others;
  }
  EXPECT_EQ(rows - others, config_keys().size());
}

}  // namespace
}  // namespace tandem
