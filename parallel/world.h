// How a rank comes by its communicators: a World is the rank's connection to all others, and makes
// the communicator of any group of them. Two kinds: threads of one process, and MPI processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "parallel/communicator.h"
#include "parallel/flight_recorder.h"
#include "parallel/report.h"

namespace tandem {

class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "mpi", "local" or "nccl".
  virtual std::string kind() const = 0;
  /// Collective over the whole world, in the same order on every rank, with the group this rank is
  /// a member of (so "tp" is called by all ranks, each with its own group). `device` is where the
  /// tensors of this communicator live.
  virtual std::unique_ptr<Communicator> make_group(const std::string& name,
                                                   const std::vector<int>& ranks, Device& device,
                                                   Ledger* ledger, Profiler* profiler) = 0;
  /// The time-out of groups made from now on: the config that names it is read after the world is
  /// there. Called with the same value on every rank.
  virtual void set_timeout(double seconds) = 0;
  /// Throws PeerLost if a peer is known to have given up: for ranks that wait elsewhere than in a
  /// collective of this world.
  virtual void check() = 0;
  /// This rank found that the world cannot go on: peers that wait for it, now or later, wake with
  /// PeerLost. Returns the report, which is this alarm's unless there was one before.
  virtual std::string raise(const Alarm& alarm) = 0;
  /// This rank cannot go on, for `why`, and leaves with `code`.
  void abandon(const std::string& why, ExitCode code = ExitCode::kPeer) noexcept;
  /// What this rank is doing, for whoever has to explain a stall.
  virtual FlightRecorder& recorder() = 0;
};

struct WorldOptions {
  double timeout_s = 60;  ///< a collective that takes longer ends the world with a report
  /// Is given the one report of why a world failed, whatever ranks find, and before any rank is
  /// told; by some thread of the rank that tells it.
  std::function<void(const std::string& report)> report = {};
  /// Is given, at most once, the words of a collective that is far slower than usual.
  std::function<void(const std::string& warning)> warn = {};
  /// The process ends with exit code 4 if a rank does not leave within a second of the report: it
  /// may hang where nothing wakes it.
  bool ends_process = false;
};

/// Runs `body` on `ranks` threads, each with its World, and waits for all. A rank whose body throws
/// abandons its world. Returns what each rank threw (nullptr where it returned).
std::vector<std::exception_ptr> run_local_world(int ranks, const WorldOptions& options,
                                                const std::function<void(World&)>& body);

/// The processes that the launcher started. Initialises MPI (MPI_THREAD_SERIALIZED) on
/// construction and finalises it on destruction, unless a peer was lost: then destruction leaves
/// MPI as it is, since finalising would wait for the peer. One per process.
std::unique_ptr<World> make_mpi_world(const WorldOptions& options);

/// Ranks that mpirun, srun or another PMI launcher announces in the environment; 0 if this process
/// was started plainly. SLURM_PROCID alone, as inside salloc, is no launcher.
int launched_ranks();
/// The place of this process among them, as the launcher says it.
int launched_rank();

}  // namespace tandem
