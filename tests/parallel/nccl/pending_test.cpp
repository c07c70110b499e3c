// When a collective on a device counts as stalled.
#include "parallel/nccl/pending.h"

#include <gtest/gtest.h>

#include <chrono>

namespace tandem::nccl {

namespace {

using namespace std::chrono_literals;

/// A place in a stream that a test moves past.
struct FakeMark {
  const bool* there;
  bool reached() const { return *there; }
};

LedgerEntry call(std::uint64_t sequence) { return {.group = Label("tp"), .sequence = sequence}; }

class PendingCalls : public ::testing::Test {
 protected:
  using Calls = Pending<FakeMark>;
  void push(std::uint64_t sequence, const bool& started, const bool& done) {
    calls.push(call(sequence), sequence, {&started}, {&done});
  }
  std::optional<Calls::Stalled> look(Calls::Clock::time_point now) { return calls.look(now); }
  std::vector<Ledger::LineNumber> forget() {
    std::vector<Ledger::LineNumber> finished;
    calls.forget_done([&](Ledger::LineNumber line, const FakeMark&, const FakeMark&) {
      finished.push_back(line);
    });
    return finished;
  }
  Calls calls{10.0};
  const Calls::Clock::time_point start = Calls::Clock::now();
};

TEST_F(PendingCalls, ACallThatTheDeviceHasNotComeToMayTakeAsLongAsItLikes) {
  const bool started = false, done = false;
  push(0, started, done);
  EXPECT_FALSE(look(start));
  EXPECT_FALSE(look(start + 1h));
  EXPECT_FALSE(calls.empty());
}

TEST_F(PendingCalls, TheTimeRunsFromWhenTheDeviceIsSeenInIt) {
  bool started = false;
  const bool done = false;
  push(7, started, done);
  EXPECT_FALSE(look(start));
  started = true;
  EXPECT_FALSE(look(start + 1h));
  EXPECT_FALSE(look(start + 1h + 10s));
  const auto stalled = look(start + 1h + 11s);
  ASSERT_TRUE(stalled);
  EXPECT_EQ(stalled->call.sequence, 7u);
  EXPECT_EQ(stalled->seconds, 11.0);
}

TEST_F(PendingCalls, EachCallHasTheWholeTime) {
  bool first_done = false;
  const bool started = true, done = false;
  push(0, started, first_done);
  push(1, started, done);
  EXPECT_FALSE(look(start));
  EXPECT_FALSE(look(start + 9s));
  first_done = true;
  EXPECT_FALSE(look(start + 12s)) << "the second is looked at for the first time";
  EXPECT_FALSE(look(start + 21s));
  const auto stalled = look(start + 23s);
  ASSERT_TRUE(stalled);
  EXPECT_EQ(stalled->call.sequence, 1u);
}

TEST_F(PendingCalls, WhatIsDoneIsForgottenWhenItsTimeWasTold) {
  const bool there = true, done = false;
  push(0, there, there);
  push(1, there, there);
  push(2, there, done);
  EXPECT_EQ(calls.oldest()->sequence, 0u) << "nobody has looked";
  EXPECT_FALSE(look(start + 1h));
  EXPECT_EQ(calls.oldest()->sequence, 2u);
  EXPECT_FALSE(calls.empty());
  EXPECT_EQ(forget(), (std::vector<Ledger::LineNumber>{0, 1}));
  EXPECT_TRUE(forget().empty()) << "told once each";
  EXPECT_EQ(calls.oldest()->sequence, 2u);
  EXPECT_TRUE(look(start + 2h)) << "its time runs on";
}

}  // namespace

}  // namespace tandem::nccl
