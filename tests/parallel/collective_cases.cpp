// Every collective against its definition, computed by each rank for itself from the inputs of all.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "parallel/layout.h"
#include "tests/parallel/cases.h"

namespace tandem::test {

namespace {

/// Magnitudes over 2^20, so that the order of a sum shows in its bits.
template <typename T>
std::vector<T> values(std::uint64_t seed, int rank, std::int64_t count) {
  std::vector<T> result;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t draw =
        scramble(seed, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i));
    const auto mantissa = static_cast<std::int64_t>(draw >> 40) - (1 << 23);
    if constexpr (std::is_integral_v<T>) {
      result.push_back(static_cast<T>(mantissa));
    } else {
      result.push_back(
          T(std::ldexp(static_cast<double>(mantissa), static_cast<int>(draw % 20) - 30)));
    }
  }
  return result;
}

template <typename T>
using SumType = std::conditional_t<std::is_integral_v<T>, std::int64_t,
                                   std::conditional_t<std::is_same_v<T, double>, double, float>>;

/// In rank order, in the sum type, rounded once.
template <typename T>
std::vector<T> reduced(std::uint64_t seed, int size, std::int64_t count, ReduceOp op) {
  using S = SumType<T>;
  std::vector<S> sums;
  for (const T& value : values<T>(seed, 0, count)) {
    sums.push_back(static_cast<S>(value));
  }
  for (int rank = 1; rank < size; ++rank) {
    const auto next = values<T>(seed, rank, count);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const S value = static_cast<S>(next[i]);
      sums[i] = op == ReduceOp::kSum   ? sums[i] + value
                : op == ReduceOp::kMax ? std::max(sums[i], value)
                                       : std::min(sums[i], value);
    }
  }
  std::vector<T> result;
  for (const S sum : sums) {
    result.push_back(T(sum));
  }
  return result;
}

struct Rank {
  Rank(World& world, Device& on)
      : device(on),
        stream(on.make_stream("test")),
        group(world.make_group("all", everyone(world), on, nullptr, nullptr)),
        size(world.size()),
        rank(world.rank()) {}
  CollectiveOptions options(ReduceOp op = ReduceOp::kSum) const {
    return {.after = stream.get(), .op = op, .label = "test"};
  }

  Device& device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> group;
  int size;
  int rank;
};

// The last is several of MPI's pieces, of four and of eight bytes.
const std::vector<std::int64_t> kCounts = {0, 1, 2, 3, 7, 64, 65, 1000, 4099, 40961, 200003};

template <typename T>
void all_reduce(World& world, Device& device, std::int64_t count, ReduceOp op) {
  Rank r(world, device);
  OnDevice<T> x(device, {count});
  const auto seed = static_cast<std::uint64_t>(count);
  x.upload(*r.stream, values<T>(seed, r.rank, count));
  r.group->all_reduce(x.tensor(), r.options(op)).wait(*r.stream);
  EXPECT_EQ(difference(x.download(*r.stream), reduced<T>(seed, r.size, count, op)), "")
      << count << " elements, rank " << r.rank << " of " << r.size;
}

template <typename T>
void all_reduces(World& world, Device& device) {
  for (const auto op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    for (const std::int64_t count : kCounts) {
      all_reduce<T>(world, device, count, op);
    }
  }
}

/// Longer than many of the pieces that MPI sends, and not a multiple of them.
void long_all_reduce(World& world, Device& device) {
  all_reduce<float>(world, device, 300001, ReduceOp::kSum);
  all_reduce<float>(world, device, 65536 * world.size() * 7 + 1, ReduceOp::kMax);
  all_reduce<BFloat16>(world, device, 600011, ReduceOp::kSum);
}

template <typename T>
void reduce_scatters(World& world, Device& device) {
  Rank r(world, device);
  std::vector<std::int64_t> counts = kCounts;
  counts.push_back(70003);
  for (const std::int64_t count : counts) {
    for (const bool in_place : {false, true}) {
      const auto seed = static_cast<std::uint64_t>(count);
      OnDevice<T> input(device, {r.size * count});
      OnDevice<T> apart(device, {count});
      input.upload(*r.stream, values<T>(seed, r.rank, r.size * count));
      const Tensor output =
          in_place ? input.tensor().slice(0, r.rank * count, count) : apart.tensor();
      r.group->reduce_scatter(input.tensor(), output, r.options()).wait(*r.stream);
      if (in_place && count > 0) {
        device.copy(*r.stream, output, apart.tensor());
      }
      const auto all = reduced<T>(seed, r.size, r.size * count, ReduceOp::kSum);
      const std::vector<T> own(all.begin() + r.rank * count, all.begin() + (r.rank + 1) * count);
      EXPECT_EQ(difference(apart.download(*r.stream), own), "") << count << " elements";
    }
  }
}

template <typename T>
void all_gathers(World& world, Device& device) {
  Rank r(world, device);
  for (const std::int64_t count : kCounts) {
    for (const bool in_place : {false, true}) {
      const auto seed = static_cast<std::uint64_t>(count);
      OnDevice<T> apart(device, {count});
      OnDevice<T> output(device, {r.size * count});
      apart.upload(*r.stream, values<T>(seed, r.rank, count));
      Tensor input = apart.tensor();
      if (in_place && count > 0) {
        input = output.tensor().slice(0, r.rank * count, count);
        device.copy(*r.stream, apart.tensor(), input);
      }
      r.group->all_gather(input, output.tensor(), r.options()).wait(*r.stream);
      std::vector<T> expected;
      for (int peer = 0; peer < r.size; ++peer) {
        const auto part = values<T>(seed, peer, count);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      EXPECT_EQ(difference(output.download(*r.stream), expected), "") << count << " elements";
    }
  }
}

/// Rank a sends a different number of rows to each rank, none to some.
void all_to_alls(World& world, Device& device) {
  Rank r(world, device);
  for (const std::int64_t width : {1, 3, 1000, 30011}) {
    for (const std::int64_t scale : {0, 1, 5}) {
      const auto rows = [&](int from, int to) { return scale * ((from + 2 * to) % 4); };
      std::vector<std::int64_t> send, receive;
      for (int peer = 0; peer < r.size; ++peer) {
        send.push_back(rows(r.rank, peer));
        receive.push_back(rows(peer, r.rank));
      }
      const auto total = [](const auto& counts) {
        return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      };
      OnDevice<float> input(device, {total(send), width});
      OnDevice<float> output(device, {total(receive), width});
      input.upload(*r.stream, values<float>(9, r.rank, total(send) * width));
      r.group->all_to_all(input.tensor(), send, output.tensor(), receive, r.options())
          .wait(*r.stream);
      std::vector<float> expected;
      for (int peer = 0; peer < r.size; ++peer) {
        std::int64_t before = 0;
        std::int64_t all = 0;
        for (int to = 0; to < r.size; ++to) {
          before += to < r.rank ? rows(peer, to) : 0;
          all += rows(peer, to);
        }
        const auto sent = values<float>(9, peer, all * width);
        const auto begin = sent.begin() + before * width;
        expected.insert(expected.end(), begin, begin + rows(peer, r.rank) * width);
      }
      EXPECT_EQ(difference(output.download(*r.stream), expected), "");
    }
  }
}

void broadcasts(World& world, Device& device) {
  Rank r(world, device);
  for (int root = 0; root < r.size; ++root) {
    for (const std::int64_t count : kCounts) {
      OnDevice<std::int64_t> x(device, {count});
      x.upload(*r.stream, values<std::int64_t>(7, r.rank, count));
      r.group->broadcast(x.tensor(), root, r.options()).wait(*r.stream);
      EXPECT_EQ(difference(x.download(*r.stream), values<std::int64_t>(7, root, count)), "");
    }
  }
}

/// Scalars that the host reads, and the ones it makes: no stream to come after.
void host_scalars(World& world, Device&) {
  const auto host = one_thread_cpu();
  Rank r(world, *host);
  for (int round = 0; round < 50; ++round) {
    double tokens = r.rank + round;
    r.group->all_reduce(Tensor(&tokens, DType::kF64, {1}), {}).wait_host();
    EXPECT_EQ(tokens, r.size * (r.size - 1) / 2.0 + r.size * round);
    r.group->barrier({}).wait_host();
  }
}

/// As a gradient reducer does: many at once, waited for late and in another order.
void many_outstanding(World& world, Device& device) {
  Rank r(world, device);
  constexpr std::int64_t kCount = 5000;
  std::vector<std::unique_ptr<OnDevice<float>>> buckets;
  std::vector<Work> works;
  for (std::uint64_t bucket = 0; bucket < 12; ++bucket) {
    buckets.push_back(std::make_unique<OnDevice<float>>(device, Shape{kCount}));
    buckets.back()->upload(*r.stream, values<float>(bucket, r.rank, kCount));
    works.push_back(r.group->all_reduce(buckets.back()->tensor(), r.options()));
  }
  for (std::size_t bucket = buckets.size(); bucket-- > 0;) {
    works[bucket].wait(*r.stream);
    EXPECT_EQ(difference(buckets[bucket]->download(*r.stream),
                         reduced<float>(bucket, r.size, kCount, ReduceOp::kSum)),
              "");
  }
}

/// The same buffer again and again, ordered by nothing but waits on the stream.
void buffer_reused(World& world, Device& device) {
  Rank r(world, device);
  OnDevice<float> x(device, {3000});
  for (int round = 0; round < 30; ++round) {
    std::vector<float> ones(3000, static_cast<float>(r.rank + round));
    x.upload(*r.stream, ones);
    r.group->all_reduce(x.tensor(), r.options()).wait(*r.stream);
    r.group->all_reduce(x.tensor(), r.options()).wait(*r.stream);
    const auto sum = static_cast<float>(r.size * (r.size - 1) / 2 + r.size * round);
    EXPECT_EQ(x.download(*r.stream), std::vector<float>(3000, sum * static_cast<float>(r.size)));
  }
}

/// B96: groups of every layout of the world, made by all ranks in one order, used side by side.
void layout_groups(World& world, Device& device) {
  Rank r(world, device);
  for (int tp = 1; tp <= r.size; ++tp) {
    if (r.size % tp != 0) {
      continue;
    }
    const Layout layout{.tp = tp, .dp = r.size / tp, .rank = r.rank};
    Ledger ledger;
    const auto tensor_group = world.make_group("tp", layout.tp_group(), device, &ledger, nullptr);
    const auto data_group = world.make_group("dp", layout.dp_group(), device, &ledger, nullptr);
    const auto unused = world.make_group("unused", layout.world_group(), device, &ledger, nullptr);
    for (Communicator* group : {tensor_group.get(), data_group.get()}) {
      OnDevice<double> sum(device, {1});
      sum.upload(*r.stream, {static_cast<double>(1 << r.rank)});
      group->all_reduce(sum.tensor(), r.options()).wait(*r.stream);
      double expected = 0;
      for (const int member : group->ranks()) {
        expected += 1 << member;
      }
      EXPECT_EQ(sum.download(*r.stream).front(), expected) << group->name() << " of tp " << tp;
    }
    // A group of one leaves no entry.
    EXPECT_EQ(ledger.calls(), static_cast<std::uint64_t>((tp > 1) + (r.size / tp > 1)));
  }
}

/// A group of one fills results that have a place of their own.
void alone(World& world, Device& device) {
  Rank r(world, device);
  const auto self = world.make_group("self", {r.rank}, device, nullptr, nullptr);
  OnDevice<float> x(device, {2, 3});
  const std::vector<float> given = {1, 2, 3, 4, 5, 6};
  x.upload(*r.stream, given);
  OnDevice<float> gathered(device, {2, 3}), scattered(device, {2, 3}), sent(device, {2, 3});
  const std::vector<std::int64_t> rows = {2};
  self->all_gather(x.tensor(), gathered.tensor(), r.options()).wait(*r.stream);
  self->reduce_scatter(x.tensor(), scattered.tensor(), r.options()).wait(*r.stream);
  self->all_to_all(x.tensor(), rows, sent.tensor(), rows, r.options()).wait(*r.stream);
  self->all_reduce(x.tensor(), r.options()).wait(*r.stream);
  for (OnDevice<float>* result : {&x, &gathered, &scattered, &sent}) {
    EXPECT_EQ(result->download(*r.stream), given);
  }
}

/// A rank that drops its work unread, as when it throws, frees its buffer next: a peer that comes
/// late still gets what was in it. Where peers read each other's memory the work waits for that;
/// elsewhere what is queued on a device may outlive it, and a wait is the caller's.
void dropped_unread(World& world, Device& device) {
  if (world.kind() != "local" && !device.host_memory()) {
    return;
  }
  Rank r(world, device);
  constexpr std::int64_t kCount = 50000;
  for (std::uint64_t round = 0; round < 4; ++round) {
    OnDevice<float> x(device, {kCount});
    x.upload(*r.stream, values<float>(round, r.rank, kCount));
    if (r.rank == 0 && r.size > 1) {
      r.group->all_reduce(x.tensor(), r.options());
      x.upload(*r.stream, std::vector<float>(kCount, 1e30f));
      r.stream->synchronize();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    r.group->all_reduce(x.tensor(), r.options()).wait(*r.stream);
    EXPECT_EQ(
        difference(x.download(*r.stream), reduced<float>(round, r.size, kCount, ReduceOp::kSum)),
        "");
  }
}

/// What the ledger keeps of each call: the operation, its elements, and none for a barrier.
void entries(World& world, Device& device) {
  Ledger ledger;
  const auto group = world.make_group("all", everyone(world), device, &ledger, nullptr);
  const auto stream = device.make_stream("test");
  OnDevice<float> x(device, {6});
  x.upload(*stream, values<float>(1, world.rank(), 6));
  stream->synchronize();
  group->all_reduce(x.tensor(), {.after = stream.get(), .label = "sum"}).wait(*stream);
  group->barrier({.after = stream.get(), .label = "all here"}).wait(*stream);
  stream->synchronize();
  stream->synchronize();  // before the tensor goes
  const std::vector<LedgerEntry> kept = ledger.recent();
  if (world.size() == 1) {
    EXPECT_TRUE(kept.empty()) << "a group of one communicates with nobody";
    return;
  }
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].op, Collective::kAllReduce);
  EXPECT_EQ(kept[0].count, 6);
  EXPECT_EQ(kept[1].op, Collective::kBarrier);
  EXPECT_EQ(kept[1].count, 0);
  EXPECT_EQ(kept[1].sequence, kept[0].sequence + 1);
}

/// B97-like misuse is an error of the rank that commits it, before anything is sent.
void refusals(World& world, Device& device) {
  Rank r(world, device);
  OnDevice<float> x(device, {4, 6});
  const Tensor columns = x.tensor().slice(1, 0, 3);
  EXPECT_THROW(r.group->all_reduce(columns, r.options()), InternalError);
  EXPECT_THROW(r.group->broadcast(columns, 0, r.options()), InternalError);
  EXPECT_THROW(r.group->broadcast(x.tensor(), r.size, r.options()), InternalError);
  EXPECT_THROW(r.group->all_reduce(Tensor{}, r.options()), InternalError);
  const Tensor three(x.tensor().data, DType::kF32, {4, 3});
  EXPECT_THROW(r.group->all_gather(columns, three, r.options()), InternalError);
  EXPECT_THROW(r.group->reduce_scatter(three, columns, r.options()), InternalError);
  OnDevice<float> wide(device, {r.size * 4, 6});
  EXPECT_THROW(r.group->all_gather(three, wide.tensor().slice(1, 0, 3), r.options()),
               InternalError);
  EXPECT_THROW(r.group->reduce_scatter(wide.tensor().slice(1, 0, 3), three, r.options()),
               InternalError);
  if (r.size > 1) {  // another rank's place, or one that begins within the output
    const std::int64_t other = (r.rank + 1) % r.size;
    EXPECT_THROW(
        r.group->all_gather(wide.tensor().slice(0, 4 * other, 4), wide.tensor(), r.options()),
        InternalError);
    EXPECT_THROW(
        r.group->reduce_scatter(wide.tensor(), wide.tensor().slice(0, 4 * other, 4), r.options()),
        InternalError);
    EXPECT_THROW(r.group->all_gather(wide.tensor().slice(0, 4 * r.rank + (r.rank == 0 ? 1 : -1), 4),
                                     wide.tensor(), r.options()),
                 InternalError);
  }
  OnDevice<float> out(device, {r.size * 4 + 1, 6});
  EXPECT_THROW(r.group->all_gather(x.tensor(), out.tensor(), r.options()), InternalError);
  EXPECT_THROW(r.group->reduce_scatter(out.tensor(), x.tensor(), r.options()), InternalError);
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(r.size), 5);
  EXPECT_THROW(r.group->all_to_all(x.tensor(), rows, out.tensor(), rows, r.options()),
               InternalError);
  r.group->barrier({}).wait_host();  // and the group still works
}

}  // namespace

std::vector<Case> collective_cases() {
  return {
      {"AllReduceF64", all_reduces<double>},
      {"AllReduceF32", all_reduces<float>},
      {"AllReduceBF16", all_reduces<BFloat16>},
      {"AllReduceI64", all_reduces<std::int64_t>},
      {"AllReduceLong", long_all_reduce},
      {"ReduceScatterF32", reduce_scatters<float>},
      {"ReduceScatterBF16", reduce_scatters<BFloat16>},
      {"AllGatherF32", all_gathers<float>},
      {"AllGatherBF16", all_gathers<BFloat16>},
      {"AllToAll", all_to_alls},
      {"Broadcast", broadcasts},
      {"HostScalars", host_scalars},
      {"ManyOutstanding", many_outstanding},
      {"BufferReused", buffer_reused},
      {"LayoutGroups", layout_groups},
      {"Alone", alone},
      {"DroppedUnread", dropped_unread},
      {"Entries", entries},
      {"Refusals", refusals},
  };
}

}  // namespace tandem::test
