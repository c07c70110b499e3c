// Every row of the duality table: hand-worked values, and the adjoint test <A x, y> = <x, A^T y>
// on random x and y. Over replicated values the inner product counts once (rank 0's); over values
// that are parts or that belong to the rank it is the sum over ranks.
#include <gtest/gtest.h>

#include <numeric>

#include "parallel/operators.h"
#include "tests/parallel/cases.h"

namespace tandem::test {

namespace {

using Values = std::vector<double>;

/// What a value is on the ranks of the group, and so how its inner product is formed.
enum class Spread {
  kReplicated,  ///< the same on every rank: counts once
  kOwn,         ///< each rank's own, whether a part or a partial sum: the sum over ranks
};

struct Rank {
  Rank(World& world, Device& on)
      : device(on),
        stream(on.make_stream("test")),
        group(world.make_group("tp", everyone(world), on, nullptr, nullptr)),
        control(world.make_group("control", everyone(world), *host, nullptr, nullptr)),
        size(world.size()),
        rank(world.rank()) {}
  CollectiveOptions options() const { return {.after = stream.get(), .label = "test"}; }

  /// Integers, so that both inner products are exact and may be compared for equality.
  Values draw(std::uint64_t seed, std::int64_t count, Spread spread) const {
    const std::uint64_t who = spread == Spread::kReplicated ? 99 : static_cast<std::uint64_t>(rank);
    Values values;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(
          static_cast<double>(scramble(seed, who, static_cast<std::uint64_t>(i)) % 201) - 100);
    }
    return values;
  }
  double inner(const Values& a, const Values& b, Spread spread) const {
    double sum = 0;
    if (spread == Spread::kOwn || rank == 0) {
      sum = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    }
    control->all_reduce(Tensor(&sum, DType::kF64, {1}), {}).wait_host();
    return sum;
  }

  Device& device;
  std::unique_ptr<Device> host = one_thread_cpu();
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> group, control;
  int size;
  int rank;
};

/// Applies `apply(x, out)`, which returns an OperatorResult, to values of shape `from`.
template <typename Apply>
Values run(Rank& r, const Values& values, const Shape& from, const Shape& to, Apply&& apply) {
  OnDevice<double> x(r.device, from);
  OnDevice<double> out(r.device, to);
  OnDevice<double> result(r.device, to);
  x.upload(*r.stream, values);
  const OperatorResult answer = apply(x.tensor(), out.tensor());
  answer.work.wait(*r.stream);
  EXPECT_EQ(answer.tensor.numel(), to.numel());
  r.device.copy(*r.stream, answer.tensor.flat(), result.tensor().flat());
  return result.download(*r.stream);
}

/// One row of the table on shapes x -> y.
template <typename Forward, typename Backward>
void expect_adjoint(Rank& r, const Shape& x_shape, Spread x_spread, const Shape& y_shape,
                    Spread y_spread, Forward&& forward, Backward&& backward) {
  const Values x = r.draw(1, x_shape.numel(), x_spread);
  const Values d_y = r.draw(2, y_shape.numel(), y_spread);
  const Values y = run(r, x, x_shape, y_shape, forward);
  const Values d_x = run(r, d_y, y_shape, x_shape, backward);
  EXPECT_EQ(r.inner(y, d_y, y_spread), r.inner(x, d_x, x_spread));
}

/// f: x is replicated, what follows is partial on each rank, and so is its gradient.
void copy_to_tensor_parallel(World& world, Device& device) {
  Rank r(world, device);
  const CopyToTensorParallel f(*r.group);
  expect_adjoint(
      r, {3, 4}, Spread::kReplicated, {3, 4}, Spread::kOwn,
      [&](const Tensor& x, const Tensor&) { return f.forward(x, r.options()); },
      [&](const Tensor& d_y, const Tensor&) { return f.backward(d_y, r.options()); });
}

/// B56: W (2 x 4) = [[1,2,3,4],[5,6,7,8]] cut by columns over two ranks, dY of ones.
void input_gradient_is_summed(World& world, Device& device) {
  Rank r(world, device);
  if (r.size != 2) {
    return;
  }
  const CopyToTensorParallel f(*r.group);
  const Values partial = r.rank == 0 ? Values{3, 11} : Values{7, 15};
  EXPECT_EQ(run(r, partial, {1, 2}, {1, 2},
                [&](const Tensor& d_x, const Tensor&) { return f.backward(d_x, r.options()); }),
            (Values{10, 26}));
}

/// g: x is a partial sum on each rank, the sum is replicated and its gradient counts once.
void reduce_from_tensor_parallel(World& world, Device& device) {
  Rank r(world, device);
  const ReduceFromTensorParallel g(*r.group);
  expect_adjoint(
      r, {3, 4}, Spread::kOwn, {3, 4}, Spread::kReplicated,
      [&](const Tensor& x, const Tensor&) { return g.forward(x, r.options()); },
      [&](const Tensor& d_y, const Tensor&) { return g.backward(d_y, r.options()); });
}

void gather_from_tensor_parallel(World& world, Device& device) {
  Rank r(world, device);
  const GatherFromTensorParallel gather(*r.group, device);
  OnDevice<double> scratch(device, {r.size, 5, 3});
  expect_adjoint(
      r, {5, 3}, Spread::kOwn, {5, 3 * r.size}, Spread::kReplicated,
      [&](const Tensor& x, const Tensor& out) {
        return gather.forward(x, out, scratch.tensor(), r.options());
      },
      [&](const Tensor& d_y, const Tensor& out) { return gather.backward(d_y, out, r.options()); });
}

/// B59: the last dimension is joined, not the first: rank r holds column r.
void columns_are_joined(World& world, Device& device) {
  Rank r(world, device);
  const GatherFromTensorParallel gather(*r.group, device);
  OnDevice<double> scratch(device, {r.size, 2, 1});
  const Values column = {2.0 * r.rank + 1, 2.0 * r.rank + 2};  // [[1],[2]], [[3],[4]], ...
  Values expected;
  for (int row = 0; row < 2; ++row) {
    for (int rank = 0; rank < r.size; ++rank) {
      expected.push_back(2 * rank + 1 + row);  // [[1,3,...],[2,4,...]]
    }
  }
  const Values joined =
      run(r, column, {2, 1}, {2, r.size}, [&](const Tensor& x, const Tensor& out) {
        return gather.forward(x, out, scratch.tensor(), r.options());
      });
  EXPECT_EQ(joined, expected);
  const Values back = run(
      r, joined, {2, r.size}, {2, 1},
      [&](const Tensor& d_y, const Tensor& out) { return gather.backward(d_y, out, r.options()); });
  EXPECT_EQ(back, column);
}

void scatter_to_tensor_parallel(World& world, Device& device) {
  Rank r(world, device);
  const ScatterToTensorParallel scatter(*r.group, device);
  OnDevice<double> scratch(device, {r.size, 5, 3});
  expect_adjoint(
      r, {5, 3 * r.size}, Spread::kReplicated, {5, 3}, Spread::kOwn,
      [&](const Tensor& x, const Tensor& out) { return scatter.forward(x, out, r.options()); },
      [&](const Tensor& d_y, const Tensor& out) {
        return scatter.backward(d_y, out, scratch.tensor(), r.options());
      });
}

/// The gathered tokens are used by a partial computation on each rank.
void gather_from_sequence_parallel(World& world, Device& device) {
  Rank r(world, device);
  const GatherFromSequenceParallel gather(*r.group);
  expect_adjoint(
      r, {3, 2}, Spread::kOwn, {3 * r.size, 2}, Spread::kOwn,
      [&](const Tensor& x, const Tensor& out) { return gather.forward(x, out, r.options()); },
      [&](const Tensor& d_y, const Tensor& out) { return gather.backward(d_y, out, r.options()); });
}

void reduce_scatter_to_sequence_parallel(World& world, Device& device) {
  Rank r(world, device);
  const ReduceScatterToSequenceParallel scatter(*r.group);
  expect_adjoint(
      r, {3 * r.size, 2}, Spread::kOwn, {3, 2}, Spread::kOwn,
      [&](const Tensor& x, const Tensor& out) { return scatter.forward(x, out, r.options()); },
      [&](const Tensor& d_y, const Tensor& out) {
        return scatter.backward(d_y, out, r.options());
      });
}

void scatter_to_sequence_parallel(World& world, Device& device) {
  Rank r(world, device);
  const ScatterToSequenceParallel scatter(*r.group);
  expect_adjoint(
      r, {3 * r.size, 2}, Spread::kReplicated, {3, 2}, Spread::kOwn,
      [&](const Tensor& x, const Tensor&) { return scatter.forward(x, r.options()); },
      [&](const Tensor& d_y, const Tensor& out) {
        return scatter.backward(d_y, out, r.options());
      });
}

/// B60: with a replicated input and a loss over all tokens, every rank's gradient is whole.
void sequence_scatter_gives_back_every_token(World& world, Device& device) {
  Rank r(world, device);
  const ScatterToSequenceParallel scatter(*r.group);
  const Shape all{2 * r.size, 1};
  const Values ones(2, 1.0);
  const Values d_x = run(r, ones, {2, 1}, all, [&](const Tensor& d_y, const Tensor& out) {
    return scatter.backward(d_y, out, r.options());
  });
  EXPECT_EQ(d_x, Values(static_cast<std::size_t>(all.numel()), 1.0));
}

void all_to_all(World& world, Device& device) {
  Rank r(world, device);
  const AllToAll exchange(*r.group);
  std::vector<std::int64_t> send, receive;
  for (int peer = 0; peer < r.size; ++peer) {
    send.push_back((r.rank + 2 * peer) % 3);
    receive.push_back((peer + 2 * r.rank) % 3);
  }
  const auto total = [](const auto& rows) {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  };
  if (r.size == 1) {
    send = receive = {2};
  }
  expect_adjoint(
      r, {total(send), 2}, Spread::kOwn, {total(receive), 2}, Spread::kOwn,
      [&](const Tensor& x, const Tensor& out) {
        return exchange.forward(x, send, out, receive, r.options());
      },
      [&](const Tensor& d_y, const Tensor& out) {
        return exchange.backward(d_y, send, out, receive, r.options());
      });
}

/// Every rank's own copy of the loss counts.
void all_reduce_sum(World& world, Device& device) {
  Rank r(world, device);
  const AllReduceSum sum(*r.group);
  expect_adjoint(
      r, {3, 4}, Spread::kOwn, {3, 4}, Spread::kOwn,
      [&](const Tensor& x, const Tensor&) { return sum.forward(x, r.options()); },
      [&](const Tensor& d_y, const Tensor&) { return sum.backward(d_y, r.options()); });
}

/// Loss = sum of the output, on every rank: through AllReduceSum the gradient of ones(4) is the
/// number of ranks, through g, whose loss counts once, it is 1.
void two_ways_to_count_a_loss(World& world, Device& device) {
  Rank r(world, device);
  const Values ones(4, 1.0);
  const AllReduceSum sum(*r.group);
  const ReduceFromTensorParallel g(*r.group);
  EXPECT_EQ(run(r, ones, {4}, {4},
                [&](const Tensor& d_y, const Tensor&) { return sum.backward(d_y, r.options()); }),
            Values(4, r.size));
  EXPECT_EQ(run(r, ones, {4}, {4},
                [&](const Tensor& d_y, const Tensor&) { return g.backward(d_y, r.options()); }),
            ones);
}

/// In a group of one every row of the table is the identity: no copy, no collective.
void alone_nothing_is_copied(World& world, Device& device) {
  Rank r(world, device);
  const auto self = world.make_group("self", {r.rank}, device, nullptr, nullptr);
  OnDevice<double> x(device, {2, 2}), out(device, {2, 2}), scratch(device, {2, 2});
  const auto is_x = [&](const OperatorResult& result) {
    return result.tensor.data == x.tensor().data;
  };
  const auto o = r.options();
  EXPECT_TRUE(is_x(CopyToTensorParallel(*self).backward(x.tensor(), o)));
  EXPECT_TRUE(is_x(ReduceFromTensorParallel(*self).forward(x.tensor(), o)));
  EXPECT_TRUE(is_x(GatherFromTensorParallel(*self, device)
                       .forward(x.tensor(), out.tensor(), scratch.tensor(), o)));
  EXPECT_TRUE(is_x(GatherFromTensorParallel(*self, device).backward(x.tensor(), out.tensor(), o)));
  EXPECT_TRUE(is_x(ScatterToTensorParallel(*self, device).forward(x.tensor(), out.tensor(), o)));
  EXPECT_TRUE(is_x(GatherFromSequenceParallel(*self).forward(x.tensor(), out.tensor(), o)));
  EXPECT_TRUE(is_x(ReduceScatterToSequenceParallel(*self).forward(x.tensor(), out.tensor(), o)));
  EXPECT_TRUE(is_x(ScatterToSequenceParallel(*self).forward(x.tensor(), o)));
}

}  // namespace

std::vector<Case> operator_cases() {
  return {
      {"AloneNothingIsCopied", alone_nothing_is_copied},
      {"CopyToTensorParallel", copy_to_tensor_parallel},
      {"InputGradientIsSummed", input_gradient_is_summed},
      {"ReduceFromTensorParallel", reduce_from_tensor_parallel},
      {"GatherFromTensorParallel", gather_from_tensor_parallel},
      {"ColumnsAreJoined", columns_are_joined},
      {"ScatterToTensorParallel", scatter_to_tensor_parallel},
      {"GatherFromSequenceParallel", gather_from_sequence_parallel},
      {"ReduceScatterToSequenceParallel", reduce_scatter_to_sequence_parallel},
      {"ScatterToSequenceParallel", scatter_to_sequence_parallel},
      {"SequenceScatterGivesBackEveryToken", sequence_scatter_gives_back_every_token},
      {"AllToAll", all_to_all},
      {"AllReduceSum", all_reduce_sum},
      {"TwoWaysToCountALoss", two_ways_to_count_a_loss},
  };
}

}  // namespace tandem::test
