#include <fmt/format.h>

#include "core/yaml.h"
#include "tools/bench/hardware.h"

namespace tandem {

namespace {

/// MB that caches keep of what the ranks of a CPU go through in a micro-batch. Not measured: with
/// it, steps of models of 9 to 74 MB are predicted best on CPUs with AMX and 2 MiB of L2 each.
constexpr int kCacheMb = 20;

template <typename Numbers>
std::string list(const Numbers& numbers) {
  return fmt::format("[{:.4g}]", fmt::join(numbers, ", "));
}

/// Rates without the zeros at the end of a row would be shorter, and harder to read back.
std::string rates(const std::vector<double>& gflops) {
  return fmt::format("[{:.3g}]", fmt::join(gflops, ", "));
}

std::string costs(const RangeCosts& ranges) {
  std::string text;
  for (const auto& [range, cost] : ranges) {
    text +=
        fmt::format("          {}: {{us: {:.4g}, matmul: {:.4g}, s_per_tb: {:.4g}}}\n",
                    yaml::string_text(range), cost.fixed * 1e6, cost.matmul, cost.per_byte * 1e12);
  }
  return text;
}

std::string type_text(const MeasuredType& type) {
  std::string text = fmt::format("      {}:\n        step_us: {:.4g}\n        gflops:\n",
                                 name_of(type.storage), type.step_fixed * 1e6);
  constexpr std::array kNames = {"forward", "input_gradient", "weight_gradient"};
  for (std::size_t kind = 0; kind < kMatmulKinds; ++kind) {
    text += fmt::format("          {}: {}\n", kNames[kind], rates(type.gflops[kind]));
  }
  return text + "        ranges:\n" + costs(type.ranges) + "        cold_ranges:\n" +
         costs(type.cold_ranges);
}

std::string ranks_text(const MeasuredRanks& ranks) {
  std::string text = fmt::format("  - ranks: {}\n    threads: {}\n    waits: {:.3g}\n", ranks.ranks,
                                 ranks.threads, ranks.collectives.waits);
  text += ranks.collectives.links.empty() ? "    collectives: {}\n" : "    collectives:\n";
  for (const auto& [op, link] : ranks.collectives.links) {
    text += fmt::format("      {}: {{latency_us: {:.4g}, gb_per_s: {:.4g}}}\n", name_of(op),
                        link.latency * 1e6, link.bytes_per_s / 1e9);
  }
  text += "    types:\n";
  for (const MeasuredType& type : ranks.types) {
    text += type_text(type);
  }
  return text;
}

}  // namespace

std::string to_yaml(const MeasuredHardware& hardware) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  std::string text =
      fmt::format("name: {}\nkind: cpu\nsources:\n", yaml::string_text(hardware.name));
  for (const std::string& source : hardware.sources) {
    text += fmt::format("  - {}\n", yaml::string_text(source));
  }
  text += fmt::format(
      "ranks_per_host: {}\nranks_are: {}\nmemory_gib: {:.4g}\nreserved_gib: 0\nuncertainty: "
      "0.25\ncache_mb: {}\n",
      hardware.cpus, hardware.processes ? "processes" : "threads", hardware.memory / kGiB,
      kCacheMb);
  text += fmt::format("matmul_shapes:\n  rows: {}\n  widths: {}\nmeasured:\n", list(kLatticeRows),
                      list(kLatticeWidths));
  for (const MeasuredRanks& ranks : hardware.ranks) {
    text += ranks_text(ranks);
  }
  return text;
}

}  // namespace tandem
