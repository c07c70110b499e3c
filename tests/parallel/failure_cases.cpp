#include "tests/parallel/failure_cases.h"

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

namespace tandem::test {

namespace {

using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Communicator> group_of(World& world, Device& device) {
  return world.make_group("tp", everyone(world), device, nullptr, nullptr);
}

Tensor floats(std::vector<float>& values) {
  return Tensor::of(std::span<float>(values), {static_cast<std::int64_t>(values.size())});
}

void sum(Communicator& group, std::vector<float>& values, std::string_view label) {
  group.all_reduce(floats(values), {.label = label}).wait_host();
}

/// B98: the last rank brings two elements fewer.
void counts_differ(World& world, Device& device) {
  const auto group = group_of(world, device);
  std::vector<float> small(8, 1.0f);
  sum(*group, small, "warm-up");
  std::vector<float> values(world.rank() == world.size() - 1 ? 409598 : 409600, 1.0f);
  sum(*group, values, "bucket 3");
}

void check_counts_differ(int, int size, const std::string& text) {
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0: tp#1 all_reduce fp32 x 409600 `bucket 3`"),
                          HasSubstr("rank " + std::to_string(size - 1) +
                                    ": tp#1 all_reduce fp32 x 409598 `bucket 3`")));
}

/// B99: the last rank gathers while the others reduce.
void collectives_differ(World& world, Device& device) {
  const auto group = group_of(world, device);
  std::vector<float> values(16, 1.0f);
  if (world.rank() == world.size() - 1) {
    std::vector<float> all(16 * static_cast<std::size_t>(world.size()));
    group->all_gather(floats(values), floats(all), {.label = "head"}).wait_host();
  } else {
    sum(*group, values, "fc2");
  }
}

void check_collectives_differ(int, int size, const std::string& text) {
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("group tp {0, 1"), HasSubstr("rank 0: tp#0 all_reduce fp32 x 16 `fc2`"),
            HasSubstr("rank " + std::to_string(size - 1) + ": tp#0 all_gather fp32 x 16 `head`")));
}

void reductions_differ(World& world, Device& device) {
  const auto group = group_of(world, device);
  std::vector<float> values(16, 1.0f);
  const auto op = world.rank() == 0 ? ReduceOp::kMax : ReduceOp::kSum;
  group->all_reduce(floats(values), {.op = op}).wait_host();
}

void check_reductions_differ(int, int, const std::string& text) {
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0: tp#0 all_reduce fp32 x 16 (max)"),
                          HasSubstr("rank 1: tp#0 all_reduce fp32 x 16\n")));
}

/// Rank 0 sends one row more than rank 1 expects.
void rows_differ(World& world, Device& device) {
  const auto group = group_of(world, device);
  const auto size = static_cast<std::size_t>(world.size());
  std::vector<std::int64_t> send(size, 1), receive(size, 1);
  send[1] += world.rank() == 0;
  std::vector<float> input(size + (world.rank() == 0)), output(size);
  group->all_to_all(floats(input), send, floats(output), receive, {}).wait_host();
  group->barrier({}).wait_host();
}

void check_rows_differ(int, int, const std::string& text) {
  EXPECT_THAT(text, AllOf(HasSubstr("all_to_all"), HasSubstr("rank 0 sends 2"),
                          HasSubstr("to rank 1, which expects 1")));
}

/// B41: rank 1 fails at step 3, the others wait for it, in one group or another.
void one_rank_throws(World& world, Device& device) {
  const auto group = group_of(world, device);
  const auto control = world.make_group("control", everyone(world), device, nullptr, nullptr);
  for (int step = 0; step < 10; ++step) {
    if (world.rank() == 1 && step == 3) {
      throw InternalError("the loss of step 3 is missing");
    }
    std::vector<float> values(50000, 1.0f);
    sum(*group, values, "gradients");
    control->barrier({}).wait_host();
  }
}

void check_one_rank_throws(int rank, int, const std::string& text) {
  EXPECT_EQ(text,
            rank == 1 ? "the loss of step 3 is missing" : "rank 1: the loss of step 3 is missing");
}

/// Rank 1 is busy for longer than the others wait.
void one_rank_is_late(World& world, Device& device) {
  const auto group = group_of(world, device);
  if (world.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::duration<double>(4 * kShortTimeout));
  }
  std::vector<float> values(10, 1.0f);
  sum(*group, values, "layers.2.fc2 g.forward");
}

void check_one_rank_is_late(int, int size, const std::string& text) {
  EXPECT_THAT(text, HasSubstr("rank 1 has not reached tp#0 all_reduce fp32 x 10 "
                              "`layers.2.fc2 g.forward` (group {0, 1"));
  EXPECT_THAT(text, HasSubstr("it has called nothing yet"));
  EXPECT_THAT(text, HasSubstr(size == 2 ? "rank 0 waits in tp#0" : " wait"));
}

/// The last rank ends without the second collective.
void one_rank_ends_early(World& world, Device& device) {
  const auto group = group_of(world, device);
  std::vector<float> values(10, 1.0f);
  sum(*group, values, "first");
  if (world.rank() != world.size() - 1) {
    sum(*group, values, "second");
  }
}

void check_one_rank_ends_early(int rank, int size, const std::string& text) {
  if (rank == size - 1) {
    EXPECT_EQ(text, "");
  } else {
    EXPECT_THAT(text, HasSubstr("rank " + std::to_string(size - 1) +
                                " ended without tp#1 all_reduce fp32 x 10 `second`"));
  }
}

}  // namespace

std::vector<FailureCase> failure_cases() {
  return {
      {"CountsDiffer", counts_differ, check_counts_differ},
      {"CollectivesDiffer", collectives_differ, check_collectives_differ},
      {"ReductionsDiffer", reductions_differ, check_reductions_differ},
      {"RowsDiffer", rows_differ, check_rows_differ},
      {"OneRankThrows", one_rank_throws, check_one_rank_throws},
      {"OneRankIsLate", one_rank_is_late, check_one_rank_is_late},
      {"OneRankEndsEarly", one_rank_ends_early, check_one_rank_ends_early},
  };
}

}  // namespace tandem::test
