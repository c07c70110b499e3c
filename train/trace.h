// trace.json of a run: what every rank's recorder holds, in Chrome's trace format, which Perfetto
// (https://ui.perfetto.dev) and chrome://tracing show. A process per rank, a track for what it
// computes and one for each group's collectives, arrows from a collective to the wait for it.
#pragma once

#include <filesystem>

#include "core/trace.h"
#include "parallel/rank_context.h"
#include "train/hosts.h"

namespace tandem {

/// Collective over rank.control: rank 0 writes the events of all ranks to `file` on one clock. That
/// of ranks on other hosts is set by a barrier, so they may be off by its time. Rank 0 warns if
/// it cannot be written: the run is over and has its results.
void write_trace(const RankContext& rank, const HostMap& hosts, const TraceRecorder& recorder,
                 const std::filesystem::path& file);

}  // namespace tandem
