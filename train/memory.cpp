#include "train/memory.h"

#include <fmt/format.h>

#include <optional>

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

std::string memory_table(const Arena& arena) {
  std::string table;
  for (std::size_t c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    if (arena.bytes(category) > 0) {
      table +=
          fmt::format("  {:<14}{:>12}\n", name_of(category), bytes_text(arena.bytes(category)));
    }
  }
  return table + fmt::format("  {:<14}{:>12}\n", "total", bytes_text(arena.total()));
}

void check_memory(const Config& config, const Layout& layout, const Precision& precision,
                  const Arena& measured, int ranks_here, std::size_t available) {
  const std::size_t budget = available / static_cast<std::size_t>(ranks_here);
  if (measured.total() <= budget) {
    return;
  }
  std::string text =
      fmt::format("a rank needs {}, and this host has {} for {}. Memory of one rank:\n{}",
                  bytes_text(measured.total()), bytes_text(budget),
                  ranks_here == 1 ? "it" : fmt::format("each of its {} ranks", ranks_here),
                  memory_table(measured));
  if (const auto micro_batch = fitting_micro_batch(config, layout, precision, budget)) {
    text += fmt::format("What would fit: train.micro_batch: {} (now {}), with more accumulation.",
                        *micro_batch, config.train.micro_batch);
  } else {
    text += fmt::format(
        "What would fit: more tensor-parallel ranks over more hosts (parallel.tp is {}), or a "
        "smaller model (model.hidden {}, model.ffn {}, model.layers {}).",
        config.parallel.tp, config.model.hidden, config.model.ffn, config.model.layers);
  }
  throw ConfigError(text);
}

}  // namespace tandem
