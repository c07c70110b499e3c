// The communicators of ranks that are threads.
#include <gtest/gtest.h>

#include "tests/parallel/cases.h"

namespace tandem::test {

namespace {

class LocalRanks : public testing::TestWithParam<std::tuple<int, Case>> {};

TEST_P(LocalRanks, MatchTheDefinition) {
  const auto& [ranks, test_case] = GetParam();
  run_ranks(ranks, test_case.body);
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<int, Case>>& info) {
  return std::get<1>(info.param).name + "On" + std::to_string(std::get<0>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Collectives, LocalRanks,
                         testing::Combine(testing::Range(1, 5),
                                          testing::ValuesIn(collective_cases())),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Operators, LocalRanks,
                         testing::Combine(testing::Range(1, 5),
                                          testing::ValuesIn(operator_cases())),
                         name_of_case);

}  // namespace

}  // namespace tandem::test
