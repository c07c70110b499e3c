// The communicators of ranks that are processes, on host memory and on memory that they have to
// stage; started by mpirun, also with one rank.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/parallel/cases.h"
#include "tests/support/deferred_device.h"

namespace tandem::test {

namespace {

struct Place {
  std::string name;
  DeviceFactory make_device;
};

const Place kCpu{"Cpu", one_thread_cpu};
const Place kDeferred{"Deferred", [] { return testing::make_deferred_device(1, 1); }};

using Parameter = std::tuple<Place, Case>;

class MpiRanks : public ::testing::TestWithParam<Parameter> {
 public:
  /// main()'s, since MPI can be initialised once in a process.
  inline static World* world = nullptr;
};

TEST_P(MpiRanks, MatchTheDefinition) {
  const auto& [place, test_case] = GetParam();
  const auto device = place.make_device();
  test_case.body(*world, *device);
}

std::string name_of_case(const ::testing::TestParamInfo<Parameter>& info) {
  const auto& [place, test_case] = info.param;
  return test_case.name + place.name;
}

INSTANTIATE_TEST_SUITE_P(Collectives, MpiRanks,
                         ::testing::Combine(::testing::Values(kCpu, kDeferred),
                                            ::testing::ValuesIn(collective_cases())),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Operators, MpiRanks,
                         ::testing::Combine(::testing::Values(kCpu, kDeferred),
                                            ::testing::ValuesIn(operator_cases())),
                         name_of_case);

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
