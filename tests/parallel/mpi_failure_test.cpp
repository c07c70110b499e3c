// Ranks as processes whose peers fail, disagree or are late: everybody is told, and MPI is
// finalised all the same. A world can break once, so each case is a launch of its own: the argument
// names it.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/parallel/failure_cases.h"

namespace tandem::test {

namespace {

int run_case(const FailureCase& failure) {
  std::string text;
  int rank = 0;
  int size = 0;
  {
    const auto world = make_mpi_world({.timeout_s = kShortTimeout});
    rank = world->rank();
    size = world->size();
    if (size < 2 || size != launched_ranks()) {
      std::cerr << "the launcher did not start the ranks of this test: use scripts/mpirun.sh N\n";
      return 1;
    }
    const auto device = one_thread_cpu();
    try {
      failure.body(*world, *device);
    } catch (const std::exception& error) {
      text = error.what();
      world->abandon(text);
    }
  }
  failure.check(rank, size, text);
  return testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace

}  // namespace tandem::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (const auto& failure : tandem::test::failure_cases()) {
    if (argc == 2 && failure.name == argv[1]) {
      return tandem::test::run_case(failure);
    }
  }
  std::cerr << "usage: parallel_mpi_failure_test CASE\n";
  return 1;
}
