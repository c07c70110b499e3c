// Which device a rank computes on and what carries its collectives, decided from what all ranks
// found on their hosts: a pure function, so that every rank comes to the same answer and tests need
// no GPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/cuda_module.h"
#include "train/config.h"
#include "train/hosts.h"

namespace tandem {

/// What one rank sees.
struct RankGpus {
  std::string host;
  int visible = 0;      ///< usable GPUs that the driver shows its process
  int ordinal = 0;      ///< the one it would take if every rank can have its own
  std::string gpu;      ///< that GPU's identity
  std::string first;    ///< the identity of GPU 0
  bool nccl = true;     ///< its build has NCCL
  bool shown = false;   ///< the driver shows its process a GPU, usable or not
  std::string missing;  ///< why none is usable, where that is so
};

struct Placement {
  DeviceKind device = DeviceKind::kCpu;
  CommChoice comm = CommChoice::kLocal;  ///< never kAuto
  int ordinal = 0;                       ///< of the GPU
  int sharers = 1;                       ///< ranks on this rank's GPU
  bool first_on_gpu = true;              ///< of those, the one of the lowest rank
};

/// `ranks`: of the whole world. `threads`: all ranks are threads of one process. Throws ConfigError
/// for wishes that cannot be fulfilled, naming the ranks and what to write instead.
///
/// device auto takes GPUs if every rank sees one. Ranks of one host take its GPUs in turn. comm
/// auto is nccl where every rank has a GPU of its own; local keeps all ranks on GPU 0, since
/// threads then read each other's memory.
Placement place_rank(DeviceChoice device, CommChoice comm, bool threads,
                     const std::vector<RankGpus>& ranks, int rank);

/// What to tell of GPUs that are there and are not used since not every rank can use one: the first
/// that cannot, and why. Nothing where no rank is shown any, or each can use one.
std::optional<std::string> unused_gpus(const std::vector<RankGpus>& ranks);

/// What every rank of `control` sees, from what this one found. Collective.
std::vector<RankGpus> gather_gpus(Communicator& control, const HostMap& hosts,
                                  const CudaFound& found);

}  // namespace tandem
