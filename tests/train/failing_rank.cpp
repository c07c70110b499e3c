// `train` with a data source that throws on rank 1 at its third step, for launch_test. Started by
// mpirun, every process leaves its exit code in the file code.RANK.
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/train/failing_source.h"
#include "train/train_job.h"

int main(int argc, char** argv) {
  using namespace tandem;
  Program program = train_program();
  program.prepare = [](const CommandLine&, const Config& config, const Layout& layout) {
    return std::make_unique<TrainJob>(config, test::failing_source(config, layout));
  };
  const int code = launch(program, argc, argv);
  if (const char* rank = std::getenv("OMPI_COMM_WORLD_RANK")) {
    std::ofstream(std::string("code.") + rank) << code;
  }
  return code;
}
