// How a program becomes ranks and ends with one exit code. Started by mpirun or srun, the process
// is one rank of an MPI world; started plainly, the ranks of the layout are threads of this process
// and MPI is never initialised. Each rank checks its command line, config and data on its own; one
// agreement then finds the worst error, one rank prints it, and all leave with its code.
//
// This is the only place that names a concrete device or communicator; train/roof.cpp and bench
// hardware alone make CPU devices of their own, to measure.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/arena.h"
#include "core/device.h"
#include "parallel/rank_context.h"
#include "parallel/world.h"
#include "train/command_line.h"
#include "train/config.h"
#include "train/host_memory.h"
#include "train/hosts.h"
#include "train/placement.h"

namespace tandem {

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

/// The work of one rank between the agreement on errors and the exit code.
class Job {
 public:
  virtual ~Job() = default;
  /// Returns the exit code, the same on every rank.
  virtual int run(Session& session) = 0;
};

struct Program {
  ProgramDescription description;
  /// Checks everything that can be checked without other ranks; throws what is wrong.
  std::function<std::unique_ptr<Job>(const CommandLine&, const Config&, const Layout&)> prepare;
  /// Its job asks for stop_signal() and ends by itself; a signal ends any other program at once.
  bool stops_itself = false;
};

/// Runs `program` on the ranks that were started, or as threads, and returns the exit code.
int launch(const Program& program, int argc, const char* const* argv);

/// A program without ranks: reads the command line and the config and returns what `run` returns,
/// or prints what it throws.
int launch_alone(const ProgramDescription& program, int argc, const char* const* argv,
                 const std::function<int(const CommandLine&, const Config&)>& run);

/// An error of this rank that all ranks know of: it prints it, and nobody waits for it.
struct Agreed : Error {
  using Error::Error;
};
/// An agreed error that another rank prints.
struct Silenced : Error {
  explicit Silenced(ExitCode code) : Error(code, "another rank reports the error") {}
};
/// Runs `check` on every rank of `control` and agrees on the outcome: returns if none threw, else
/// throws on every rank: Agreed with the error on the rank that is to print it (the worst exit
/// code, then the lowest rank), Silenced on all others. `check` must not communicate.
void agree(Communicator& control, const std::function<void()>& check);

}  // namespace tandem
