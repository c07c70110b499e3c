// The communicators of ranks with a GPU each, over a stand-in for NCCL: the definition of every
// collective, and what becomes of a peer that errs, stalls or gives up.
#include "parallel/nccl/nccl_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/parallel/cases.h"
#include "tests/support/deferred_device.h"
#include "tests/support/fake_nccl/fake_nccl.h"

namespace tandem::test {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::unique_ptr<Device> deferred() {
  static std::atomic<std::uint64_t> seed{0};
  return testing::make_deferred_device(1, ++seed);
}

/// `body` on every rank of a world that talks through NCCL; what each threw, in words.
std::vector<std::string> run_nccl(int ranks, double timeout_s, const RankBody& body,
                                  const WorldOptions& options = {}) {
  const auto thrown = run_local_world(ranks, options, [&](World& world) {
    const auto host = make_cpu_device(1);
    const auto device = deferred();
    const auto control = world.make_group("control", everyone(world), *host, nullptr, nullptr);
    const auto nccl = nccl::make_nccl_world(world, *control, *device, {.timeout_s = timeout_s});
    body(*nccl, *device);
    control->barrier({.label = "end"}).wait_host();
  });
  std::vector<std::string> texts;
  for (const auto& error : thrown) {
    texts.push_back(text_of(error));
  }
  return texts;
}

using Parameter = std::tuple<int, Case>;
class NcclRanks : public ::testing::TestWithParam<Parameter> {};

TEST_P(NcclRanks, MatchTheDefinition) {
  const auto& [ranks, test_case] = GetParam();
  const int aborted = testing::aborted_communicators();
  for (const std::string& text : run_nccl(ranks, 30, test_case.body)) {
    EXPECT_EQ(text, "");
  }
  EXPECT_EQ(testing::living_communicators(), 0);
  EXPECT_EQ(testing::aborted_communicators(), aborted);
}

std::string name_of_case(const ::testing::TestParamInfo<Parameter>& info) {
  return std::get<1>(info.param).name + std::to_string(std::get<0>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Collectives, NcclRanks,
                         ::testing::Combine(::testing::Range(1, 5),
                                            ::testing::ValuesIn(collective_cases())),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Operators, NcclRanks,
                         ::testing::Combine(::testing::Range(1, 5),
                                            ::testing::ValuesIn(operator_cases())),
                         name_of_case);

/// A group of all ranks with a tensor of ones on each.
struct Rank {
  Rank(World& world, Device& device)
      : stream(device.make_stream("compute")),
        group(world.make_group("all", everyone(world), device, &ledger, nullptr)),
        x(device, {1000}) {
    x.upload(*stream, std::vector<float>(1000, 1.0f));
    stream->synchronize();
  }
  Work sum() { return group->all_reduce(x.tensor(), {.after = stream.get(), .label = "the sum"}); }

  Ledger ledger;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> group;
  OnDevice<float> x;
};

TEST(NcclFailure, AStalledCollectiveIsToldInTheLedgersWordsAndAborted) {
  const int before = testing::aborted_communicators();
  const auto start = Clock::now();
  std::atomic<bool> told{false};
  const auto texts = run_nccl(2, 1, [&](World& world, Device& device) {
    Rank rank(world, device);
    if (world.rank() == 0) {
      const Work work = rank.sum();
      work.wait(*rank.stream);  // returns: the host is not held
      try {
        rank.group->settle();
      } catch (const PeerLost&) {
        told = true;
        EXPECT_THROW(rank.sum(), PeerLost) << "nothing goes on";
        rank.stream->synchronize();  // returns: no kernel waits any more
        throw;
      }
    }
    while (!told) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_THAT(texts[0],
              AllOf(HasSubstr("all#0 all_reduce fp32 x 1000 `the sum`"),
                    HasSubstr("in group all {0, 1}"), HasSubstr("not complete after 1.")));
  EXPECT_GT(testing::aborted_communicators(), before);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

TEST(NcclFailure, AStallIsFoundWhileTheRanksThreadIsHeldBehindIt) {
  const auto start = Clock::now();
  std::atomic<bool> woken{false};
  const auto texts = run_nccl(2, 1, [&](World& world, Device& device) {
    Rank rank(world, device);
    world.recorder().set_step(12);
    if (world.rank() == 0) {
      rank.sum().wait(*rank.stream);
      rank.stream->synchronize();  // as a launch would into a full queue: it knows of no time-out
      woken = true;
      EXPECT_THROW(rank.sum(), PeerLost);
      rank.group->settle();
    }
    while (!woken) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    rank.sum().wait_host();  // its peer has told it
  });
  EXPECT_THAT(texts[0], HasSubstr("not complete after 1."));
  EXPECT_THAT(texts[1], AllOf(HasSubstr("rank 0: step 12: all#0 all_reduce fp32 x 1000 `the sum`"),
                              HasSubstr("not complete after 1.")));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

/// Queues are full as long as it lives.
struct FullQueues {
  FullQueues() { testing::fill_queues(true); }
  ~FullQueues() { testing::fill_queues(false); }
};

TEST(NcclFailure, AStallIsFoundWhileACallOfAnotherGroupIsHeldBehindIt) {
  std::atomic<bool> woken{false};
  const auto texts = run_nccl(2, 1, [&](World& world, Device& device) {
    const auto other = world.make_group("other", everyone(world), device, nullptr, nullptr);
    Rank rank(world, device);
    if (world.rank() == 0) {
      rank.sum().wait(*rank.stream);
      const FullQueues full;
      EXPECT_THROW(other->all_reduce(rank.x.tensor(), {.after = rank.stream.get()}).wait_host(),
                   PeerLost)
          << "the stall is aborted, which lets the call go on, and then this group";
      woken = true;
      rank.group->settle();
    }
    while (!woken) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    world.check();
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, AllOf(HasSubstr("all#0 all_reduce fp32 x 1000 `the sum`"),
                            HasSubstr("not complete after 1.")));
  }
}

TEST(NcclFailure, AStallIsToldWhileTheNextCallOfItsGroupIsHeldBehindIt) {
  const auto texts = run_nccl(2, 1, [](World& world, Device& device) {
    Rank rank(world, device);
    if (world.rank() == 0) {
      rank.sum().wait(*rank.stream);
      testing::fill_queues(true);
      rank.sum().wait_host();
    }
    try {
      while (true) {
        world.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    } catch (const PeerLost&) {
      testing::fill_queues(false);  // a real one stays full, and the report ends the process
      throw;
    }
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, AllOf(HasSubstr("all#0 all_reduce fp32 x 1000 `the sum`"),
                            HasSubstr("not complete after 1.")));
  }
}

TEST(NcclFailure, AStallIsToldWhereEvenTheLookIsHeld) {
  std::atomic<bool> told{false};
  const auto texts = run_nccl(2, 1, [&](World& world, Device& device) {
    Rank rank(world, device);
    if (world.rank() == 0) {
      rank.sum().wait(*rank.stream);
      testing::hold_queries(true);
      while (!told) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      testing::hold_queries(false);
      rank.group->settle();
    }
    try {
      while (true) {
        world.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    } catch (const PeerLost&) {
      told = true;
      throw;
    }
  });
  EXPECT_THAT(texts[1],
              AllOf(HasSubstr("rank 0: the GPU has not answered for 1 s, not seen done at "),
                    HasSubstr("all#0 all_reduce fp32 x 1000 `the sum` in group {0, 1}")));
  EXPECT_NE(texts[0], "");
}

TEST(NcclFailure, ALookThatCannotReachTheGpuIsTold) {
  const auto texts = run_nccl(2, 60, [&](World& world, Device& device) {
    const Rank rank(world, device);
    testing::lose_gpu(true);
    while (true) {
      world.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  testing::lose_gpu(false);
  for (const std::string& text : texts) {
    EXPECT_THAT(text, HasSubstr("cudaSetDevice failed"));
  }
}

TEST(NcclFailure, AnErrorOfNcclIsToldInItsWordsAndTheLedgers) {
  for (const ncclResult_t kind : {ncclRemoteError, ncclInternalError, ncclUnhandledCudaError}) {
    std::atomic<bool> found{false};
    const auto texts = run_nccl(2, 60, [&](World& world, Device& device) {
      Rank rank(world, device);
      if (world.rank() == 1) {
        while (!found) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        throw DataError("rank 1 has a bad file");
      }
      const Work work = rank.sum();
      testing::report_error(0, kind);
      EXPECT_THROW(work.wait_host(), PeerLost);
      found = true;
      work.wait_host();
    });
    testing::report_error(0, ncclSuccess);
    EXPECT_THAT(texts[0], AllOf(HasSubstr("the last words of NCCL"), HasSubstr("all_reduce fp32"),
                                HasSubstr("in group {0, 1}")));
  }
}

TEST(NcclFailure, APeerThatGaveUpWakesThoseWhoWaitForIt) {
  const auto start = Clock::now();
  const auto texts = run_nccl(2, 60, [&](World& world, Device& device) {
    Rank rank(world, device);
    if (world.rank() == 1) {
      throw DataError("a bad file");
    }
    rank.sum().wait_host();
  });
  EXPECT_THAT(texts[0], HasSubstr("rank 1: a bad file"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
}

TEST(NcclFailure, WhatLeavesTellsTheWorldAndThenCancelsWhatIsUnderWay) {
  const int before = testing::aborted_communicators();
  std::atomic<int> aborted_when_told{-1};
  const auto texts = run_nccl(2, 60,
                              [](World& world, Device& device) {
                                Rank rank(world, device);
                                if (world.rank() == 0) {
                                  try {
                                    const Work under_way = rank.sum();
                                    throw DataError("a bad file");
                                  } catch (const DataError& error) {
                                    rank.group->cancel(error.what(), error.code());
                                  }
                                  rank.stream->synchronize();
                                  EXPECT_THROW(rank.group->settle(), PeerLost);
                                  return;
                                }
                                while (true) {
                                  world.check();
                                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                }
                              },
                              {.report = [&](const std::string&) {
                                aborted_when_told = testing::aborted_communicators();
                              }});
  EXPECT_THAT(texts[1], HasSubstr("rank 0: a bad file"));
  EXPECT_EQ(aborted_when_told, before) << "peers would report the end of a communicator";
  EXPECT_GT(testing::aborted_communicators(), before);
}

TEST(NcclFailure, RanksThatCalledDifferentThingsFindOutBeforeResultsAreUsed) {
  const auto texts = run_nccl(2, 60, [](World& world, Device& device) {
    Rank rank(world, device);
    rank.sum().wait(*rank.stream);
    rank.group->compare_calls();
    rank.group
        ->all_reduce(rank.x.tensor(), {.after = rank.stream.get(),
                                       .label = world.rank() == 0 ? "one path" : "another path"})
        .wait(*rank.stream);
    EXPECT_THROW(rank.group->compare_calls(), PeerLost);
    rank.group->compare_calls();
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0: all#1 all_reduce fp32 x 1000 `one path`"),
                            HasSubstr("rank 1: all#1 all_reduce fp32 x 1000 `another path`")));
  }
}

TEST(NcclExposed, IsTheTimeForWhichTheStreamHadNothingElseToDo) {
  const auto texts = run_nccl(2, 60, [](World& world, Device& device) {
    Rank rank(world, device);
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    const auto start = Clock::now();
    rank.sum().wait(*rank.stream);
    if (world.rank() == 0) {
      EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(150)) << "the host was held";
    }
    EXPECT_LT(rank.ledger.exposed_seconds(), 0.1) << "not measured yet";
    rank.group->settle();
    if (world.rank() == 0) {
      EXPECT_GT(rank.ledger.exposed_seconds(), 0.1);
      EXPECT_LT(rank.ledger.exposed_seconds(), 10.0);
      // Its kernel waited for the peer just as long.
      EXPECT_GT(rank.ledger.lines().front().seconds, 0.1);
      EXPECT_LT(rank.ledger.lines().front().seconds, 10.0);
    }
    EXPECT_EQ(rank.x.download(*rank.stream), std::vector<float>(1000, 2.0f));
  });
  EXPECT_EQ(texts, (std::vector<std::string>{"", ""}));
}

}  // namespace

}  // namespace tandem::test
