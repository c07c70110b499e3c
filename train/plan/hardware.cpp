#include "train/plan/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>

#include "core/error.h"
#include "core/yaml.h"
#include "train/roof.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
const fs::path kFolder = "configs/hardware";
constexpr const char* kOtherVersion =
    ": another version of bench hardware wrote the file. Measure again: build/bench hardware";

/// A map of the file whose keys are read one by one; what nobody asked for is an error.
class Section {
 public:
  Section(const yaml::Source& source, std::string path, const yaml::Node& node)
      : source_(&source), path_(std::move(path)), node_(&node) {
    if (node.kind != yaml::Kind::kMap) {
      yaml::refuse({source.at(node.line, node.column), path_, node}, "write a map");
    }
  }

  void read(const std::string& key, const std::function<void(const yaml::Field&)>& use) {
    const auto entry = std::find_if(node_->entries.begin(), node_->entries.end(),
                                    [&](const yaml::Entry& e) { return e.key == key; });
    if (entry == node_->entries.end()) {
      throw ConfigError(source_->name + ": " + full(key) + " is missing" +
                        (path_.starts_with("measured") ? kOtherVersion : ""));
    }
    use(field(*entry));
    seen_.push_back(key);
  }
  bool has(const std::string& key) const {
    return std::any_of(node_->entries.begin(), node_->entries.end(),
                       [&](const yaml::Entry& e) { return e.key == key; });
  }
  double number(const std::string& key) {
    double value = 0.0;
    read(key, [&](const yaml::Field& f) {
      value = yaml::read_number(f, ">= 0", [](double x) { return x >= 0.0; });
    });
    return value;
  }
  std::string text(const std::string& key) {
    std::string value;
    read(key, [&](const yaml::Field& f) { value = yaml::read_string(f); });
    return value;
  }
  std::vector<double> numbers(const std::string& key) {
    std::vector<double> values;
    read(key, [&](const yaml::Field& f) {
      for (const yaml::Node& item : f.node.items) {
        values.push_back(
            yaml::read_number({f.where, f.key, item}, ">= 0", [](double x) { return x >= 0.0; }));
      }
    });
    return values;
  }
  Section section(const std::string& key) {
    const yaml::Node* node = nullptr;
    read(key, [&](const yaml::Field& f) { node = &f.node; });
    return {*source_, full(key), *node};
  }
  std::vector<Section> sections(const std::string& key) {
    std::vector<Section> items;
    read(key, [&](const yaml::Field& f) {
      for (const yaml::Node& item : f.node.items) {
        items.emplace_back(*source_, full(key) + "[" + std::to_string(items.size()) + "]", item);
      }
    });
    return items;
  }
  const std::string& name() const { return source_->name; }
  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    for (const yaml::Entry& entry : node_->entries) {
      names.push_back(entry.key);
    }
    return names;
  }
  void leave(const std::string& key) { seen_.push_back(key); }
  void finish() const {
    for (const yaml::Entry& entry : node_->entries) {
      if (std::find(seen_.begin(), seen_.end(), entry.key) == seen_.end()) {
        yaml::refuse(field(entry), "no such key: docs/plan.md has them all");
      }
    }
  }

 private:
  std::string full(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  yaml::Field field(const yaml::Entry& entry) const {
    return {source_->at(entry.line, entry.column), full(entry.key), entry.value};
  }

  const yaml::Source* source_;
  std::string path_;
  const yaml::Node* node_;
  std::vector<std::string> seen_;
};

Link read_link(Section section) {
  const Link link = {section.number("latency_us") * 1e-6, section.number("gb_per_s") * 1e9};
  section.finish();
  return link;
}

RangeCost read_cost(Section section) {
  const RangeCost cost = {.fixed = section.number("us") * 1e-6,
                          .per_byte = section.number("s_per_tb") * 1e-12,
                          .matmul = section.number("matmul")};
  section.finish();
  return cost;
}

RangeCosts read_ranges(Section section) {
  RangeCosts costs;
  for (const std::string& range : section.keys()) {
    costs.emplace(range, read_cost(section.section(range)));
  }
  section.finish();
  return costs;
}

MatmulRates read_matmuls(Section& file, Section section) {
  Section shapes = file.section("matmul_shapes");
  std::array<std::vector<double>, kMatmulKinds> gflops = {section.numbers("forward"),
                                                          section.numbers("input_gradient"),
                                                          section.numbers("weight_gradient")};
  section.finish();
  std::vector<double> rows = shapes.numbers("rows"), widths = shapes.numbers("widths");
  shapes.finish();
  for (const std::vector<double>& rates : gflops) {
    if (rates.empty() || rates.front() == 0.0 ||
        rates.size() != rows.size() * widths.size() * widths.size()) {
      throw ConfigError(fmt::format(
          "{}: a list of gflops has {} numbers, and matmul_shapes asks for {} that begin above 0",
          file.name(), rates.size(), rows.size() * widths.size() * widths.size()));
    }
  }
  return {std::move(rows), std::move(widths), std::move(gflops)};
}

/// One entry of `measured`: what so many ranks of a host cost, for `storage`.
Costs read_costs(Section& file, Section section, DType storage) {
  Costs costs;
  costs.ranks = static_cast<int>(section.number("ranks"));
  costs.threads = static_cast<int>(section.number("threads"));
  costs.waits = section.number("waits");
  Section collectives = section.section("collectives");
  for (const Collective op :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    if (const std::string name(name_of(op)); collectives.has(name)) {
      costs.collectives[op] = read_link(collectives.section(name));
    }
  }
  collectives.finish();
  Section types = section.section("types");
  for (const std::string& type : types.keys()) {
    types.leave(type);
  }
  const std::string name(name_of(storage));
  if (!types.has(name)) {
    throw ConfigError(file.name() + ": " + name +
                      " was not measured: build/bench hardware --set precision=" + name);
  }
  Section type = types.section(name);
  costs.step_fixed = type.number("step_us") * 1e-6;
  costs.matmuls = read_matmuls(file, type.section("gflops"));
  costs.ranges = read_ranges(type.section("ranges"));
  if (type.has("cold_ranges")) {
    costs.cold_ranges = read_ranges(type.section("cold_ranges"));
  }
  type.finish();
  section.finish();
  return costs;
}

/// The number of a map from types for `storage`.
double of_type(Section section, DType storage) {
  for (const std::string& key : section.keys()) {
    section.leave(key);
  }
  return section.number(std::string(name_of(storage)));
}

fs::path find_file(const std::string& name) {
  if (name.empty()) {
    const fs::path measured = measured_hardware_file();
    if (!fs::is_regular_file(measured)) {
      throw ConfigError(
          "this machine was not measured yet: run build/bench hardware once (a minute), or name "
          "another to build/plan: --hardware h100");
    }
    return measured;
  }
  if (fs::is_regular_file(name)) {
    return name;
  }
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const fs::path shipped = kFolder / (lower + ".yaml");
  if (fs::is_regular_file(shipped)) {
    return shipped;
  }
  std::string known;
  std::error_code there_is_none;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder, there_is_none)) {
    names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& other : names) {
    known += (known.empty() ? "" : ", ") + other;
  }
  throw ConfigError("--hardware " + name + ": no such file, and " + kFolder.string() +
                    (known.empty() ? " is not here: start it from the source folder, or name a file"
                                   : " has " + known + ": write one of them, or a file"));
}

/// Whether a field is the first of the two words that it may be.
bool one_of(const yaml::Field& field, const std::string& first, const std::string& second) {
  if (field.node.text != first && field.node.text != second) {
    yaml::refuse(field, "write " + first + " or " + second);
  }
  return field.node.text == first;
}

}  // namespace

const Costs& Hardware::costs_of(int world) const {
  const int here = ranks_on_host(world);
  const auto above = std::find_if(costs.begin(), costs.end(),
                                  [here](const Costs& each) { return each.ranks > here; });
  return above == costs.begin() ? costs.front() : *(above - 1);
}

double Hardware::crowding(int world) const {
  return gpu ? 1.0 : std::max(1.0, static_cast<double>(ranks_on_host(world)) / ranks_per_host);
}

double Hardware::peak_of(int world) const {
  const MatmulRates& matmuls = costs_of(world).matmuls;
  return matmuls.empty() ? peak_flops : matmuls.best() / crowding(world);
}

double Hardware::cold_share(double bytes) const {
  return cache > 0.0 && bytes > cache ? 1.0 - cache / bytes : 0.0;
}

double Hardware::seconds(const Costs& here, Collective op, double bytes, int ranks,
                         int stride) const {
  if (ranks == 1) {
    return 0.0;
  }
  // Ranks of a host follow one another. A group that leaves its host is as slow as the network.
  const bool inside = !network || ranks * stride <= ranks_per_host;
  const Link& link = inside ? here.link_of(op) : *network;
  const double phases = op == Collective::kAllReduce ? 2.0 : 1.0;
  const double sent = sent_bytes(op, bytes, ranks) / link.bytes_per_s;
  if (!gpu) {
    return link.latency + sent;  // direct exchange; latency as measured for the call
  }
  // A ring (Patarasu and Yuan 2009) or, for short messages, a tree of log2(n) levels.
  const double ring = phases * (ranks - 1) * link.latency + sent;
  const double tree =
      phases * (std::ceil(std::log2(ranks)) * link.latency + bytes / link.bytes_per_s);
  return std::min(ring, tree);
}

fs::path measured_hardware_file() {
  const fs::path folder = cache_folder();
  return folder.empty() ? fs::path() : folder / "hardware.yaml";
}

Hardware load_hardware(const std::string& name, DType storage) {
  const fs::path file = find_file(name);
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) {
    throw ConfigError("--hardware " + name + ": " + file.string() + " cannot be read");
  }
  const yaml::Source source{file.string(), true};
  const yaml::Node root = yaml::parse(text, source);
  Section top(source, "", root);
  Hardware hardware;
  hardware.name = top.text("name");
  top.read("kind", [&](const yaml::Field& field) { hardware.gpu = one_of(field, "gpu", "cpu"); });
  top.read("sources", [&](const yaml::Field& field) {
    for (const yaml::Node& item : field.node.items) {
      hardware.sources.push_back(item.text);
    }
  });
  hardware.ranks_per_host = std::max(1, static_cast<int>(top.number("ranks_per_host")));
  hardware.memory = top.number("memory_gib") * kGiB;
  hardware.reserved = top.number("reserved_gib") * kGiB;
  hardware.uncertainty = top.number("uncertainty");
  if (top.has("cache_mb")) {
    hardware.cache = top.number("cache_mb") * 1e6;
  }
  if (top.has("ranks_are")) {
    top.read("ranks_are", [&](const yaml::Field& field) {
      hardware.processes = !one_of(field, "threads", "processes");
    });
  }
  if (top.has("network")) {
    hardware.network = read_link(top.section("network"));
  }
  if (top.has("measured")) {
    for (const Section& section : top.sections("measured")) {
      hardware.costs.push_back(read_costs(top, section, storage));
    }
    if (hardware.costs.empty()) {
      throw ConfigError(source.name + ": measured is empty");
    }
    top.leave("matmul_shapes");
  } else {
    hardware.peak_flops = of_type(top.section("peak_tflops"), storage) * 1e12;
    const double matmul = of_type(top.section("matmul_tflops"), storage) * 1e12;
    Costs costs;
    costs.any = {.fixed = top.number("range_us") * 1e-6,
                 .per_flop = 1.0 / matmul,
                 .per_byte = 1.0 / (top.number("memory_gb_per_s") * 1e9)};
    costs.link = read_link(top.section("host_link"));
    costs.step_fixed = top.number("step_us") * 1e-6;
    hardware.costs.push_back(costs);
  }
  top.finish();
  return hardware;
}

}  // namespace tandem
