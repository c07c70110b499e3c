// The communicators of ranks that are threads, on devices that work at once, on ones that work
// later, and on a GPU where there is one.
#include <gtest/gtest.h>

#include <atomic>

#include "parallel/cuda_module.h"
#include "tests/parallel/cases.h"
#include "tests/support/deferred_device.h"

namespace tandem::test {

namespace {

struct Place {
  std::string name;
  DeviceFactory make_device;
};

/// Each rank's delays are its own.
std::unique_ptr<Device> deferred() {
  static std::atomic<std::uint64_t> seed{0};
  return testing::make_deferred_device(1, ++seed);
}

/// With this machine's first GPU, if there is one: all ranks share it.
std::vector<Place> places() {
  std::vector<Place> all = {{"Cpu", one_thread_cpu}, {"Deferred", deferred}};
  if (const CudaModule* gpu = find_cuda().module) {
    all.push_back({"Cuda", [gpu] { return gpu->make_device({}); }});
  }
  return all;
}

using Parameter = std::tuple<int, Place, Case>;

class LocalRanks : public ::testing::TestWithParam<Parameter> {};

TEST_P(LocalRanks, MatchTheDefinition) {
  const auto& [ranks, place, test_case] = GetParam();
  run_ranks(ranks, test_case.body, place.make_device);
}

std::string name_of_case(const ::testing::TestParamInfo<Parameter>& info) {
  const auto& [ranks, place, test_case] = info.param;
  return test_case.name + place.name + std::to_string(ranks);
}

INSTANTIATE_TEST_SUITE_P(Collectives, LocalRanks,
                         ::testing::Combine(::testing::Range(1, 5), ::testing::ValuesIn(places()),
                                            ::testing::ValuesIn(collective_cases())),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Operators, LocalRanks,
                         ::testing::Combine(::testing::Range(1, 5), ::testing::ValuesIn(places()),
                                            ::testing::ValuesIn(operator_cases())),
                         name_of_case);

}  // namespace

}  // namespace tandem::test
