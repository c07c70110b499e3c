// The world of ranks that have a GPU each. It leans on another one (MPI processes or threads),
// which passes NCCL's id around and makes the groups whose tensors are host memory.
#pragma once

#include <memory>

#include "parallel/world.h"

namespace tandem::nccl {

/// One communicator over all ranks now, split for every group that is made later. Collective over
/// `control`, which holds all ranks of `world`; every rank's GPU is current on its thread, and no
/// two ranks have the same one. `world` outlives the result.
std::unique_ptr<World> make_nccl_world(World& world, Communicator& control, Device& device,
                                       const WorldOptions& options);

}  // namespace tandem::nccl
