// What NCCL is told, on hand-worked cases; no GPU and no NCCL needed.
#include "parallel/nccl/nccl_arguments.h"

#include <gtest/gtest.h>

#include <array>

namespace tandem::nccl {

namespace {

std::array<float, 64> memory;
Tensor floats(std::int64_t start, const Shape& shape) {
  return {memory.data() + start, DType::kF32, shape};
}

TEST(NcclArguments, TypesAndReductionsAreThoseOfTheHeader) {
  EXPECT_EQ(static_cast<int>(type_of(DType::kU8)), 1);
  EXPECT_EQ(static_cast<int>(type_of(DType::kI32)), 2);
  EXPECT_EQ(static_cast<int>(type_of(DType::kI64)), 4);
  EXPECT_EQ(static_cast<int>(type_of(DType::kF32)), 7);
  EXPECT_EQ(static_cast<int>(type_of(DType::kF64)), 8);
  EXPECT_EQ(static_cast<int>(type_of(DType::kBF16)), 9);
  EXPECT_EQ(static_cast<int>(reduction_of(ReduceOp::kSum)), 0);
  EXPECT_EQ(static_cast<int>(reduction_of(ReduceOp::kMax)), 2);
  EXPECT_EQ(static_cast<int>(reduction_of(ReduceOp::kMin)), 3);
}

TEST(NcclArguments, AllReduceAndBroadcastCountTheWholeTensorInPlace) {
  const Buffers args = in_place(floats(3, {4, 5}));
  EXPECT_EQ(args.send, memory.data() + 3);
  EXPECT_EQ(args.receive, memory.data() + 3);
  EXPECT_EQ(args.count, 20u);
  EXPECT_EQ(args.type, DataType::kFloat32);
}

TEST(NcclArguments, AllGatherCountsWhatARankSends) {
  const Buffers args = gathered(floats(0, {2, 3}), floats(8, {8, 3}));
  EXPECT_EQ(args.send, memory.data());
  EXPECT_EQ(args.receive, memory.data() + 8);
  EXPECT_EQ(args.count, 6u);
}

TEST(NcclArguments, ReduceScatterCountsWhatARankReceives) {
  const Buffers args = scattered(floats(8, {8, 3}), floats(0, {2, 3}));
  EXPECT_EQ(args.send, memory.data() + 8);
  EXPECT_EQ(args.receive, memory.data());
  EXPECT_EQ(args.count, 6u);
}

TEST(NcclArguments, AllToAllIsAnExchangeWithEveryPeerInItsPlace) {
  const std::array<std::int64_t, 3> send = {1, 0, 2}, receive = {2, 2, 0};
  const auto parts = exchanges(floats(0, {3, 4}), send, floats(20, {4, 4}), receive);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].peer, 0);
  EXPECT_EQ(parts[0].send, memory.data());
  EXPECT_EQ(parts[0].send_count, 4u);
  EXPECT_EQ(parts[0].receive, memory.data() + 20);
  EXPECT_EQ(parts[0].receive_count, 8u);
  EXPECT_EQ(parts[1].send_count, 0u);
  EXPECT_EQ(parts[1].receive, memory.data() + 28);
  EXPECT_EQ(parts[2].peer, 2);
  EXPECT_EQ(parts[2].send, memory.data() + 4);
  EXPECT_EQ(parts[2].send_count, 8u);
  EXPECT_EQ(parts[2].receive_count, 0u);
}

TEST(NcclArguments, GroupsOfALayoutHaveColoursOfTheirOwnAndKeysInOrder) {
  const std::array<int, 2> first = {0, 2}, second = {1, 3};
  EXPECT_EQ(split_of(first, 1).color, 0);
  EXPECT_EQ(split_of(first, 1).key, 1);
  EXPECT_EQ(split_of(second, 0).color, 1);
  EXPECT_EQ(split_of(second, 0).key, 0);
  const std::array<int, 1> alone = {3};
  EXPECT_EQ(split_of(alone, 0).color, kNoColor);
}

}  // namespace

}  // namespace tandem::nccl
