#include "train/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "train/data/source.h"
#include "train/state.h"

namespace tandem {

namespace {

std::size_t measured_bytes(const Config& config, const Layout& layout, const Precision& precision) {
  Arena arena;
  const TrainState state(config, layout, precision, max_rows(config), arena);
  return arena.total();
}

/// The largest divisor of the micro-batch that fits; nothing if not even one sequence does.
std::optional<std::int64_t> fitting_micro_batch(Config config, const Layout& layout,
                                                const Precision& precision, std::size_t budget) {
  const std::int64_t whole = config.train.micro_batch;
  for (std::int64_t parts = 2; parts <= whole; ++parts) {
    if (whole % parts == 0) {
      config.train.micro_batch = whole / parts;
      if (measured_bytes(config, layout, precision) <= budget) {
        return config.train.micro_batch;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::string bytes_text(std::size_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::vector<std::pair<std::string_view, std::size_t>> categories(const RankMemory& memory) {
  std::vector<std::pair<std::string_view, std::size_t>> all;
  for (std::size_t c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    all.emplace_back(name_of(category), memory.measured.bytes(category));
  }
  all.emplace_back("data", memory.host.data);
  all.emplace_back("checkpoint", memory.host.checkpoint);
  all.emplace_back("libraries", memory.host.libraries);
  return all;
}

std::string memory_table(const RankMemory& memory) {
  std::string table;
  const auto row = [&](std::string_view what, std::size_t bytes) {
    table += fmt::format("  {:<14}{:>12}\n", what, bytes_text(bytes));
  };
  for (const auto& [name, bytes] : categories(memory)) {
    if (bytes > 0) {
      row(name, bytes);
    }
  }
  row("total", memory.total());
  return table;
}

void check_memory(const Config& config, const Layout& layout, const Precision& precision,
                  const RankMemory& memory, const SharedMemory& shared) {
  const std::size_t budget = shared.available / static_cast<std::size_t>(shared.ranks);
  if (memory.total() <= budget) {
    return;
  }
  std::string text =
      fmt::format("a rank needs {}, and this {} has {} for {}. Memory of one rank:\n{}",
                  bytes_text(memory.total()), shared.gpu ? "GPU" : "host", bytes_text(budget),
                  shared.ranks == 1 ? "it" : fmt::format("each of its {} ranks", shared.ranks),
                  memory_table(memory));
  const std::size_t for_arena = budget - std::min(budget, memory.host.total());
  if (const auto micro_batch = fitting_micro_batch(config, layout, precision, for_arena)) {
    text += fmt::format("What would fit: train.micro_batch: {} (now {}), with more accumulation.",
                        *micro_batch, config.train.micro_batch);
  } else {
    text += fmt::format(
        "What would fit: {}more tensor-parallel ranks over more {} (parallel.tp is {}), or a "
        "smaller model (model.hidden {}, model.ffn {}, model.layers {}).",
        memory.host.data > budget / 2  // the rows of a step are made before it, however it is cut
            ? fmt::format("a smaller train.global_batch (now {}), ", config.train.global_batch)
            : "",
        shared.gpu ? "GPUs" : "hosts", config.parallel.tp, config.model.hidden, config.model.ffn,
        config.model.layers);
  }
  throw ConfigError(text);
}

}  // namespace tandem
