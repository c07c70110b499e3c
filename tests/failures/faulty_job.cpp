// A job whose ranks call every collective in every group, step after step, until one of them goes
// wrong in the way that the environment names:
//   FAULT="KIND RANK GROUP OPERATION", e.g. "skip 3 tp all_gather"; none: STEPS steps, then the
//   end.
// tests/failures/failures.py starts it, with threads and under mpirun, and reads what is said.
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "train/launch.h"

namespace tandem {

namespace {

struct Fault {
  std::string kind = "none";
  int rank = -1;
  std::string group, operation;
};

Fault fault_in_environment() {
  Fault fault;
  if (const char* text = std::getenv("FAULT")) {
    std::istringstream(text) >> fault.kind >> fault.rank >> fault.group >> fault.operation;
  }
  return fault;
}

long number_in(const char* variable, long otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atol(text);
}

/// For the test, which compares it with the time at which it reads the report.
void note_time_of_fault() {
  std::ofstream("fault_at")
      << std::setprecision(15)
      << std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kColumns = 8;
constexpr int kFaultyStep = 3;
const std::vector<std::string> kOperations = {"all_reduce", "all_gather", "reduce_scatter",
                                              "broadcast",  "all_to_all", "barrier"};

class FaultyJob final : public Job {
 public:
  int run(Session& session) override {
    RankContext& rank = session.rank();
    const long steps = number_in("STEPS", 1000000);
    for (step_ = 1; step_ <= steps; ++step_) {
      rank.recorder->set_step(step_);
      const ProfileRange range(rank.profiler, "step");
      std::vector<std::pair<std::string, Communicator*>> groups = {
          {"tp", rank.tensor_parallel}, {"dp", rank.data_parallel}, {"control", rank.control}};
      if (faulty(rank) && fault_.kind == "swap") {
        note_time_of_fault();
        std::swap(groups[0], groups[2]);
      }
      for (const auto& [name, group] : groups) {
        for (const std::string& operation : kOperations) {
          call(rank, name, *group, operation);
        }
      }
    }
    return 0;
  }

 private:
  bool faulty(const RankContext& rank) const {
    return fault_.rank == rank.layout.rank && step_ == kFaultyStep;
  }

  void call(const RankContext& rank, const std::string& name, Communicator& group,
            const std::string& operation) {
    const bool here = faulty(rank) && name == fault_.group && operation == fault_.operation;
    const std::string label = "layers.1 " + name + " " + operation;
    if (!here) {
      collective(group, operation, label, {});
      return;
    }
    if (fault_.kind != "swap") {
      note_time_of_fault();
    }
    const ProfileRange range(rank.profiler, "the faulty layer");
    if (fault_.kind == "throw") {
      throw InternalError("step " + std::to_string(step_) + ": no more luck in " + label);
    } else if (fault_.kind == "kill") {
      kill(getpid(), SIGKILL);
    } else if (fault_.kind == "exit") {
      _exit(0);
    } else if (fault_.kind == "stop") {
      kill(getpid(), SIGSTOP);
    } else if (fault_.kind == "loop") {
      for (std::atomic<bool> forever = true; forever;) {
      }
    } else if (fault_.kind == "read") {
      int ends[2];
      char byte = 0;
      if (pipe(ends) == 0 && read(ends[0], &byte, 1) == 0) {
        throw InternalError("nobody writes");
      }
    } else if (fault_.kind == "late") {
      std::this_thread::sleep_for(std::chrono::seconds(3600));
    } else if (fault_.kind != "skip") {
      collective(group, fault_.kind == "operation" ? another(operation) : operation,
                 fault_.kind == "label" ? label + " of another path" : label, fault_.kind);
      return;
    }
  }

  static std::string another(const std::string& operation) {
    return operation == "all_gather" ? "all_reduce" : "all_gather";
  }

  /// `fault`: "count", "type", "reduction" or "root", where the operation has one.
  static void collective(Communicator& group, const std::string& operation,
                         const std::string& label, const std::string& fault) {
    const std::int64_t rows = fault == "count" ? kRows - 1 : kRows;
    const DType type = fault == "type" ? DType::kI32 : DType::kF32;
    const std::int64_t size = group.size();
    std::vector<std::int32_t> one(static_cast<std::size_t>(rows * kColumns));
    std::vector<std::int32_t> all(static_cast<std::size_t>(rows * kColumns * size));
    const Tensor part(one.data(), type, {rows, kColumns});
    const Tensor whole(all.data(), type, {rows * size, kColumns});
    const CollectiveOptions options{.op = fault == "reduction" ? ReduceOp::kMax : ReduceOp::kSum,
                                    .label = label};
    if (operation == "all_reduce") {
      group.all_reduce(part, options).wait_host();
    } else if (operation == "all_gather") {
      group.all_gather(part, whole, options).wait_host();
    } else if (operation == "reduce_scatter") {
      group.reduce_scatter(whole, part, options).wait_host();
    } else if (operation == "broadcast") {
      group.broadcast(part, fault == "root" ? 1 : 0, options).wait_host();
    } else if (operation == "all_to_all") {
      std::vector<std::int32_t> received(all.size());
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(size), rows);
      group
          .all_to_all(whole, counts, Tensor(received.data(), type, {rows * size, kColumns}), counts,
                      options)
          .wait_host();
    } else {
      group.barrier(options).wait_host();
    }
  }

  const Fault fault_ = fault_in_environment();
  long step_ = 0;
};

}  // namespace

}  // namespace tandem

int main(int argc, char** argv) {
  using namespace tandem;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // with the shell that keeps its exit code
  return launch({.description = {.name = "faulty_job", .purpose = "Goes wrong on demand."},
                 .prepare = [](const CommandLine&, const Config&,
                               const Layout&) { return std::make_unique<FaultyJob>(); },
                 .stops_itself = true},
                argc, argv);
}
