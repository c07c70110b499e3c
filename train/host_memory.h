// What a rank takes from the heap of its host beside the arena.
#pragma once

#include <cstddef>

#include "parallel/parameter_store.h"
#include "train/config.h"

namespace tandem {

/// Bytes, at their peak.
struct HostMemory {
  std::size_t data = 0;        ///< rows of a step and of an evaluation
  std::size_t checkpoint = 0;  ///< the copy of the state that is written while training goes on
  std::size_t libraries = 0;   ///< of oneDNN and MPI: their own, and buffers for this layout

  std::size_t total() const { return data + checkpoint + libraries; }
};

/// Of the process that a rank is in.
struct HostUse {
  int threads =
      1;  ///< of the rank's cpu device; 0: it has another one, whose libraries are unknown
  bool processes = true;    ///< ranks are processes, connected by MPI
  double row_counts = 1.0;  ///< different numbers of rows that micro-batches have
};

/// `store`: the network's parameters, laid out, with or without memory. Ranks that are threads
/// share what their process has once.
HostMemory host_memory(const Config& config, const ParameterStore& store,
                       const Precision& precision, const HostUse& use);

}  // namespace tandem
