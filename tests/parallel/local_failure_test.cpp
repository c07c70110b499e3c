// Ranks as threads whose peers fail, disagree or are late: everybody is told, nobody hangs.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/parallel/failure_cases.h"
#include "tools/verify/forwarding_device.h"

namespace tandem::test {

namespace {

class LocalFailure : public testing::TestWithParam<std::tuple<int, FailureCase>> {};

TEST_P(LocalFailure, IsToldToEveryRank) {
  const auto& [size, failure] = GetParam();
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = run_local_world(size, {.timeout_s = kShortTimeout}, [&](World& world) {
    const auto device = one_thread_cpu();
    failure.body(world, *device);
  });
  for (int rank = 0; rank < size; ++rank) {
    failure.check(rank, size, text_of(thrown[static_cast<std::size_t>(rank)]));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

INSTANTIATE_TEST_SUITE_P(Cases, LocalFailure,
                         testing::Combine(testing::Range(2, 5), testing::ValuesIn(failure_cases())),
                         [](const auto& test) {
                           return std::get<1>(test.param).name + "On" +
                                  std::to_string(std::get<0>(test.param));
                         });

class FailingSums final : public verify::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  void reduce_ranks(Stream&, const ReduceRanks&) override {
    throw std::runtime_error("no memory for sums");
  }
};

/// A rank whose own part of a sum fails after all have arrived: its peers get no result.
TEST(LocalWorld, TellsPeersOfAPartThatFailed) {
  const auto thrown = run_local_world(2, {.timeout_s = 10}, [&](World& world) {
    const auto cpu = one_thread_cpu();
    FailingSums failing(*cpu);
    Device& device = world.rank() == 1 ? static_cast<Device&>(failing) : *cpu;
    const auto group = world.make_group("a", everyone(world), device, nullptr, nullptr);
    const auto stream = device.make_stream("test");
    std::vector<float> x(100000, 1.0f);
    group->all_reduce(Tensor::of<float>(x, {std::ssize(x)}), {.after = stream.get()}).wait(*stream);
  });
  EXPECT_NE(text_of(thrown[0]).find("no memory for sums"), std::string::npos) << text_of(thrown[0]);
  EXPECT_NE(text_of(thrown[1]).find("no memory for sums"), std::string::npos);
}

/// A rank that asks later, in any group, is told as well.
TEST(LocalWorld, StaysBrokenForGroupsMadeLater) {
  const auto thrown = run_local_world(3, {.timeout_s = 10}, [&](World& world) {
    const auto device = one_thread_cpu();
    if (world.rank() == 2) {
      throw DataError("a shard is unreadable");
    }
    const auto wait_for_all = [&] {
      world.make_group("all", everyone(world), *device, nullptr, nullptr)->barrier({}).wait_host();
    };
    EXPECT_THROW(wait_for_all(), PeerLost);
    const auto pair = world.make_group("pair", {0, 1}, *device, nullptr, nullptr);
    pair->barrier({}).wait_host();
  });
  for (const std::size_t rank : {0, 1}) {
    EXPECT_EQ(text_of(thrown[rank]), "rank 2: a shard is unreadable");
  }
}

TEST(LocalWorld, WaitsAsLongAsItIsTold) {
  const auto thrown = run_local_world(2, {.timeout_s = 1e300}, [&](World& world) {
    const auto device = one_thread_cpu();
    const auto group = world.make_group("a", everyone(world), *device, nullptr, nullptr);
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    group->barrier({}).wait_host();
  });
  for (const std::exception_ptr& exception : thrown) {
    EXPECT_EQ(text_of(exception), "");
  }
}

/// B104: worlds come and go, their communicators destroyed in another order on every rank.
TEST(LocalWorld, IsMadeAndDestroyedTwentyTimes) {
  for (int round = 0; round < 20; ++round) {
    run_ranks(4, [&](World& world, Device& device) {
      auto first = world.make_group("a", everyone(world), device, nullptr, nullptr);
      auto second = world.make_group("b", everyone(world), device, nullptr, nullptr);
      const auto unused = world.make_group("c", everyone(world), device, nullptr, nullptr);
      const Work work = first->barrier({});
      second->barrier({}).wait_host();
      work.wait_host();
      if ((world.rank() + round) % 2 == 0) {
        std::swap(first, second);
      }
      first.reset();
    });
  }
}

}  // namespace

}  // namespace tandem::test
