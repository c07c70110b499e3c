// Stands for mpi_world.cpp in a build without MPI.
#include "parallel/world.h"

namespace tandem {

std::unique_ptr<World> make_mpi_world(const WorldOptions&) {
  throw ConfigError(
      "a launcher started this process, but this build has no MPI: start the program plainly, and "
      "its ranks are threads, or build with -DTANDEM_MPI=ON");
}

}  // namespace tandem
