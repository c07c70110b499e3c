#include "parallel/world.h"

#include <cstdlib>
#include <initializer_list>

namespace tandem {

namespace {

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

bool any_set(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (std::getenv(variable) != nullptr) {
      return true;
    }
  }
  return false;
}

}  // namespace

void World::abandon(const std::string& why, ExitCode code) noexcept {
  try {
    raise({.text = abandoned(rank(), size(), why), .code = code});
  } catch (...) {  // no memory for the text: the peers find out by time-out
  }
}

int launched_ranks() {
  if (const int ranks = number_in("OMPI_COMM_WORLD_SIZE"); ranks > 0) {
    return ranks;
  }
  if (any_set({"PMI_RANK"}) && number_in("PMI_SIZE") > 0) {
    return number_in("PMI_SIZE");
  }
  // srun --mpi=pmix says the size in Slurm's own words, which a shell inside salloc has as well.
  if (any_set({"PMIX_RANK"}) && any_set({"SLURM_STEP_ID", "SLURM_STEPID"})) {
    const int ranks = number_in("SLURM_STEP_NUM_TASKS");
    return ranks > 0 ? ranks : number_in("SLURM_NTASKS");
  }
  return 0;
}

int launched_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    if (any_set({variable})) {
      return number_in(variable);
    }
  }
  return 0;
}

}  // namespace tandem
