// Ranks whose collectives run on a device compare what they called through the host.
#include "parallel/call_history.h"

#include <gmock/gmock.h>

#include "tests/support/ranks.h"

namespace tandem::test {

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Announcement call_of(std::uint64_t sequence, const std::string& label) {
  Announcement call{
      .entry = {Label("tp"), sequence, Collective::kAllReduce, DType::kF32, 8, Label(label)}};
  call.digest = digest_of(call);
  return call;
}

/// Three ranks that call `labels(rank)`; checks what each finds.
void expect(const std::function<std::vector<std::string>(int rank)>& labels,
            const std::function<void(const std::optional<Disagreement>&)>& check) {
  run_ranks(3, [&](World& world, Device& device) {
    const auto host = world.make_group("tp on the host", everyone(world), device, nullptr, nullptr);
    CallHistory history;
    std::uint64_t sequence = 0;
    for (const std::string& label : labels(world.rank())) {
      history.add(call_of(sequence++, label));
    }
    check(history.compare(*host));
  });
}

TEST(CallHistory, OfTheSameCallsIsTheSame) {
  expect([](int) { return std::vector<std::string>(1000, "a"); },
         [](const auto& found) { EXPECT_FALSE(found); });
}

TEST(CallHistory, NamesTheFirstCallThatDiffers) {
  expect(
      [](int rank) {
        std::vector<std::string> labels(300, "a");
        labels[290] = rank == 1 ? "b" : "a";
        labels[295] = rank == 2 ? "c" : "a";
        return labels;
      },
      [](const auto& found) {
        ASSERT_TRUE(found);
        EXPECT_THAT(found->ranks, ElementsAre(1));
        EXPECT_THAT(found->text, AllOf(HasSubstr("rank 0: tp#290 all_reduce fp32 x 8 `a`"),
                                       HasSubstr("rank 1: tp#290 all_reduce fp32 x 8 `b`")));
      });
}

TEST(CallHistory, NamesACallThatARankDidNotMake) {
  expect([](int rank) { return std::vector<std::string>(rank == 2 ? 4 : 5, "a"); },
         [](const auto& found) {
           ASSERT_TRUE(found);
           EXPECT_THAT(found->ranks, ElementsAre(2));
           EXPECT_THAT(found->text, HasSubstr("only the ranks {0, 1} of group tp {0, 1, 2} called "
                                              "tp#4 all_reduce fp32 x 8 `a`"));
         });
}

TEST(CallHistory, SaysWhenTheDifferenceIsTooLongAgo) {
  expect(
      [](int rank) {
        std::vector<std::string> labels(1000, "a");
        labels[3] = rank == 1 ? "b" : "a";
        return labels;
      },
      [](const auto& found) {
        ASSERT_TRUE(found);
        EXPECT_THAT(found->text, HasSubstr("longer ago than they remember"));
      });
}

}  // namespace

}  // namespace tandem::test
