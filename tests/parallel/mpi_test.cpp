// The communicators of ranks that are processes; started by mpirun, also with one rank.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/parallel/cases.h"

namespace tandem::test {

namespace {

class MpiRanks : public testing::TestWithParam<Case> {
 public:
  /// main()'s, since MPI can be initialised once in a process.
  inline static World* world = nullptr;
};

TEST_P(MpiRanks, MatchTheDefinition) {
  const auto device = one_thread_cpu();
  GetParam().body(*world, *device);
}

INSTANTIATE_TEST_SUITE_P(Collectives, MpiRanks, testing::ValuesIn(collective_cases()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Operators, MpiRanks, testing::ValuesIn(operator_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace

}  // namespace tandem::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto world = tandem::make_mpi_world({.timeout_s = 30});
  const char* started = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (started == nullptr || world->size() != std::atoi(started) ||
      tandem::launched_ranks() != world->size()) {
    std::cerr << "the launcher did not start the ranks of this test: use scripts/mpirun.sh N\n";
    return 1;
  }
  tandem::test::MpiRanks::world = world.get();
  const int result = RUN_ALL_TESTS();
  if (result != 0) {
    world->abandon("a test failed");
  }
  return result;
}
