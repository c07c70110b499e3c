// What a rank will ask for held against the memory there is, before anything is allocated.
#pragma once

#include <string>

#include "core/arena.h"
#include "parallel/layout.h"
#include "train/config.h"

namespace tandem {

/// "1.5 GiB"
std::string bytes_text(std::size_t bytes);
/// What one rank asks for, before it has asked.
struct RankMemory {
  const Arena& measured;
  std::size_t data = 0;  ///< DataSource::buffer_bytes(); host memory

  std::size_t total() const { return measured.total() + data; }
};

/// The arena's categories and the data, one line each, with their share of one rank's memory.
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
