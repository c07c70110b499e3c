// `train` with a data source that throws on rank 1 at its third step, for launch_test. Started by
// mpirun, every process leaves its exit code in the file code.RANK.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/train/failing_source.h"
#include "train/train_job.h"

namespace {

/// Leaves this rank's code and waits for the others': mpirun kills who is left within milliseconds
/// of the first that ends with an error, be it between its last call and this file.
void leave_code(const std::string& rank, const std::string& ranks, int code) {
  std::ofstream("code." + rank) << code << std::flush;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (int other = 0; other < std::stoi(ranks); ++other) {
    while (!std::filesystem::exists("code." + std::to_string(other)) &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tandem;
  Program program = train_program();
  program.prepare = [](const CommandLine&, const Config& config, const Layout& layout) {
    return std::make_unique<TrainJob>(config, test::failing_source(config, layout));
  };
  const int code = launch(program, argc, argv);
  if (const char* rank = std::getenv("OMPI_COMM_WORLD_RANK")) {
    leave_code(rank, std::getenv("OMPI_COMM_WORLD_SIZE"), code);
  }
  return code;
}
