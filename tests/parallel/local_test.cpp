// The communicators of ranks that are threads, on devices that work at once and on ones that work
// later.
#include <gtest/gtest.h>

#include <atomic>

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

const Place kCpu{"Cpu", one_thread_cpu};
const Place kDeferred{"Deferred", deferred};

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
                         ::testing::Combine(::testing::Range(1, 5),
                                            ::testing::Values(kCpu, kDeferred),
                                            ::testing::ValuesIn(collective_cases())),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Operators, LocalRanks,
                         ::testing::Combine(::testing::Range(1, 5),
                                            ::testing::Values(kCpu, kDeferred),
                                            ::testing::ValuesIn(operator_cases())),
                         name_of_case);

}  // namespace

}  // namespace tandem::test
