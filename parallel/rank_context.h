// Everything that belongs to one rank and that its code may need, passed explicitly: there is no
// global or thread-local rank, so ranks can live as threads of one process.
#pragma once

#include "core/device.h"
#include "core/log.h"
#include "core/profiler.h"
#include "parallel/communicator.h"
#include "parallel/flight_recorder.h"
#include "parallel/layout.h"
#include "parallel/ledger.h"

namespace tandem {

/// Borrows; train/launch owns the parts.
struct RankContext {
  Layout layout;
  Precision precision;
  int threads = 1;
  Device* device = nullptr;
  Stream* compute = nullptr;  ///< kernels of forward, backward and update
  Communicator* tensor_parallel = nullptr;
  Communicator* data_parallel = nullptr;
  /// All ranks, in host memory: token counts, verdicts, stop flags, agreement on errors.
  Communicator* control = nullptr;
  Ledger* ledger = nullptr;
  Profiler* profiler = nullptr;
  FlightRecorder* recorder = nullptr;
  const Logger* log = nullptr;
};

}  // namespace tandem
