// What a run says of itself before its first step.
#pragma once

#include <string>

#include "core/arena.h"
#include "train/console.h"
#include "train/session.h"

namespace tandem {

/// What the table shows beside the session's and the config's own.
struct RunFacts {
  const Arena* memory = nullptr;  ///< as measured, of one rank
  HostMemory beside;
  double parameters = 0.0;
  double flops_per_token = 0.0;
  double roof = 0.0;  ///< FLOP/s of all hosts or GPUs; 0 where it was not measured
  double gpus = 0.0;  ///< 0 on CPUs
  std::string data;
  std::string start;      ///< where weights came from; empty: from the seed
  std::string directory;  ///< empty for none
};

Table startup_table(Session& session, const Config& config, const RunFacts& facts);

}  // namespace tandem
