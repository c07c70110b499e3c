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
  std::size_t data = 0;  ///< DataSource::buffer_bytes()

  std::size_t total() const { return measured.total() + data; }
};

/// The arena's categories and the data, one line each, with their share of one rank's memory.
std::string memory_table(const RankMemory& memory);

/// Throws ConfigError, with the table and what would fit, if `ranks_here` ranks of this size do not
/// fit in `available` bytes.
void check_memory(const Config& config, const Layout& layout, const Precision& precision,
                  const RankMemory& memory, int ranks_here, std::size_t available);

}  // namespace tandem
