// How a program becomes ranks and ends with one exit code. Started by mpirun or srun, the process
// is one rank of an MPI world; started plainly, the ranks of the layout are threads of this process
// and MPI is never initialised. Each rank checks its command line, config and data on its own; one
// agreement then finds the worst error, one rank prints it, and all leave with its code.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "parallel/layout.h"
#include "train/command_line.h"
#include "train/config.h"
#include "train/session.h"

namespace tandem {

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

}  // namespace tandem
