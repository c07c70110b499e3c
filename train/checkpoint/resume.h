// Which checkpoint a run goes on from.
#pragma once

#include <filesystem>
#include <memory>

#include "parallel/rank_context.h"
#include "train/checkpoint/load.h"

namespace tandem {

/// Collective over all ranks. What `checkpoint.resume` names: `auto`, the newest whole one of the
/// run directory `run`; `never`, none; or a path, to a checkpoint or to the run directory that has
/// some. Rank 0 looks, and warns of newer ones that are not whole; every rank opens what it found.
/// Nothing if there is nothing to go on from. Throws DataError, agreed between the ranks, for a
/// checkpoint that cannot be read or is of another model.
std::unique_ptr<Checkpoint> checkpoint_to_resume(RankContext& rank, const Config& config,
                                                 const std::filesystem::path& run, int moments);

}  // namespace tandem
