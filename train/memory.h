// What a rank will ask for held against the memory there is, before anything is allocated.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "parallel/layout.h"
#include "train/config.h"
#include "train/host_memory.h"

namespace tandem {

/// "1.5 GiB"
std::string bytes_text(std::size_t bytes);
/// What one rank asks for, before it has asked.
struct RankMemory {
  const Arena& measured;
  HostMemory host;

  std::size_t total() const { return measured.total() + host.total(); }
};

/// Bytes by category: the arena's, then "data", "checkpoint" and "libraries".
std::vector<std::pair<std::string_view, std::size_t>> categories(const RankMemory& memory);

/// Those that are not 0, a line each.
std::string memory_table(const RankMemory& memory);

/// Memory that several ranks share.
struct SharedMemory {
  std::size_t available = 0;  ///< bytes
  int ranks = 1;
  bool gpu = false;  ///< of a GPU, else of the host
};

/// Throws ConfigError, with the table and what would fit, if ranks of this size do not fit.
void check_memory(const Config& config, const Layout& layout, const Precision& precision,
                  const RankMemory& memory, const SharedMemory& shared);

}  // namespace tandem
