// The arena's total held against the memory there is, before anything is allocated.
#pragma once

#include <string>

#include "core/arena.h"
#include "parallel/layout.h"
#include "train/config.h"

namespace tandem {

/// "1.5 GiB"
std::string bytes_text(std::size_t bytes);
/// The arena's categories, one line each, with their share of one rank's memory.
std::string memory_table(const Arena& arena);

/// Throws ConfigError, with the table and what would fit, if `ranks_here` ranks of the measured
/// size do not fit in `available` bytes.
void check_memory(const Config& config, const Layout& layout, const Precision& precision,
                  const Arena& measured, int ranks_here, std::size_t available);

}  // namespace tandem
