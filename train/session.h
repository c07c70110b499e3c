// One rank of a running program: its device and groups, and all else that a job borrows.
//
// This is the only place that names a concrete device; train/roof.cpp and bench hardware alone make
// CPU devices of their own, to measure.
#pragma once

#include <memory>

#include "core/arena.h"
#include "core/device.h"
#include "parallel/rank_context.h"
#include "parallel/world.h"
#include "train/config.h"
#include "train/host_memory.h"
#include "train/hosts.h"
#include "train/placement.h"

namespace tandem {

/// Throws ConfigError where this host has not what `device` and `parallel.comm` ask for. What only
/// all ranks together can see is for their Sessions.
void check_device(const Config& config);

/// One rank of a running program: everything that RankContext borrows, and where it runs.
class Session {
 public:
  /// Collective over the world. `control` already connects all ranks.
  Session(World& world, const Config& config, Communicator& control, Ledger& ledger, Logger log,
          std::unique_ptr<Device> device = nullptr);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  World& world() const { return *world_; }
  RankContext& rank() { return rank_; }
  const HostMap& hosts() const { return hosts_; }
  const Placement& placement() const { return placement_; }
  /// Starts and ends the range that a profiler records: once in each process, with every rank
  /// there. Collective; nothing on a CPU.
  void begin_capture() const { capture(&CudaModule::profiler_start); }
  void end_capture() const { capture(&CudaModule::profiler_stop); }
  /// Throws ConfigError if what the arena measured, in the rank's precision, does not fit where the
  /// device has its memory, or what is beside it on the host.
  void check_memory(const Config& config, const Arena& measured, const HostMemory& beside) const;
  /// What this rank takes from the host beside the arena; `store`: its parameters, laid out.
  HostMemory host_memory(const Config& config, const ParameterStore& store) const;

 private:
  void capture(void (*CudaModule::*call)()) const;
  /// Agrees with the other ranks on what to compute on, and makes this rank's device.
  void place(const Config& config, Communicator& control);
  /// The rank's GPU. One that the driver shows may still be unusable: too old a driver for the
  /// module, too old a GPU, no memory left. Then every rank gets false, with one warning, where the
  /// config leaves the device to the machine; else every rank throws.
  bool make_gpu(const Config& config, Communicator& control);

  World* world_;
  HostMap hosts_;
  Placement placement_;
  const CudaModule* cuda_ = nullptr;
  Logger log_;
  Profiler profiler_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<World> nccl_;
  std::unique_ptr<Communicator> tensor_parallel_, data_parallel_;
  RankContext rank_;
};

}  // namespace tandem
