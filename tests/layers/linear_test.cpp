// The two cuts of a linear layer against the plain product y = x W^T + b, with the operators that
// the block puts around them. Values are small integers in double: every result is exact.
#include "layers/linear.h"

#include <gtest/gtest.h>

#include "layers/tokens.h"
#include "tests/support/network_fixture.h"
#include "tools/verify/forwarding_device.h"

namespace tandem::test {

namespace {

/// A layer with its parameters.
template <typename Layer>
struct Alone {
  template <typename... Options>
  explicit Alone(const Layout& layout, const Options&... options)
      : store(layout), layer(store, options...) {}
  ParameterStore store;
  Layer layer;
};

template <typename Layer, typename... Options>
Built<Alone<Layer>> build(TestRank& rank, const Options&... options) {
  return Built<Alone<Layer>>(*rank.context.device, [&](Arena& arena) {
    auto alone = std::make_unique<Alone<Layer>>(rank.context.layout, options...);
    alone->store.allocate(arena, rank.context.precision, {});
    return alone;
  });
}

Pass pass_of(TestRank& rank, std::int64_t rows) { return {.rank = &rank.context, .rows = rows}; }

double integer(std::int64_t i, std::int64_t factor) {
  return static_cast<double>((i * factor + 3) % 7 - 3);
}

std::vector<double> integers(std::int64_t count, std::int64_t factor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(integer(i, factor));
  }
  return values;
}

/// Columns [start, start + length) of a row-major [rows, columns].
std::vector<double> columns_of(const std::vector<double>& whole, std::int64_t columns,
                               std::int64_t start, std::int64_t length) {
  std::vector<double> part;
  for (std::size_t r = 0; r < whole.size() / static_cast<std::size_t>(columns); ++r) {
    const auto row = whole.begin() + static_cast<std::ptrdiff_t>(r) * columns;
    part.insert(part.end(), row + start, row + start + length);
  }
  return part;
}

/// op(a) [m, k] op(b) [k, n] from the definition.
std::vector<double> product(std::int64_t m, std::int64_t n, std::int64_t k,
                            const std::function<double(std::int64_t, std::int64_t)>& a,
                            const std::function<double(std::int64_t, std::int64_t)>& b) {
  std::vector<double> c;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += a(i, l) * b(l, j);
      }
      c.push_back(sum);
    }
  }
  return c;
}

/// The plain layer on whole matrices: x [rows, in], W [out, in], b [out], d_y [rows, out].
struct Plain {
  std::int64_t rows, in, out;
  double x(std::int64_t r, std::int64_t i) const { return integer(r * in + i, 5); }
  double w(std::int64_t o, std::int64_t i) const { return integer(o * in + i, 3); }
  double d(std::int64_t r, std::int64_t o) const { return integer(r * out + o, 4); }

  std::vector<double> y_without_bias() const {
    return product(
        rows, out, in, [&](auto r, auto i) { return x(r, i); },
        [&](auto i, auto o) { return w(o, i); });
  }
  std::vector<double> d_x() const {  // dO W
    return product(
        rows, in, out, [&](auto r, auto o) { return d(r, o); },
        [&](auto o, auto i) { return w(o, i); });
  }
  std::vector<double> d_w() const {  // dO^T X
    return product(
        out, in, rows, [&](auto o, auto r) { return d(r, o); },
        [&](auto r, auto i) { return x(r, i); });
  }
  std::vector<double> d_b() const {
    return product(
        1, out, rows, [](auto, auto) { return 1.0; }, [&](auto r, auto o) { return d(r, o); });
  }
};

/// Says of each product whether it was announced as beside a collective.
class CompanyDevice final : public verify::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  void gemm(Stream& stream, const Gemm& args) override {
    beside_collective.push_back(args.beside_collective);
    ForwardingDevice::gemm(stream, args);
  }
  std::vector<bool> beside_collective;
};

TEST(Linear, WeightGradientsAreMadeBesideFsCollective) {
  for (const int tp : {1, 2}) {
    run_ranks(
        tp,
        [&](World& world, Device& inner) {
          CompanyDevice device(inner);
          TestRank rank(world, device, tp, kDouble);
          const auto built = build<ColumnParallelLinear>(
              rank, LinearOptions{.name = "fc1", .block = "b", .in = 4, .out = 2 * tp});
          const HostTensor x(DType::kF64, {3, 4}), y(DType::kF64, {3, 2});
          ColumnParallelLinear::Context context;
          const Pass pass = pass_of(rank, 3);
          built->layer.forward(pass, context, *x, *y);
          built->layer.backward_input(pass, *y, *x);
          built->layer.backward_weight(pass, context, *y);
          EXPECT_EQ(device.beside_collective, (std::vector<bool>{false, false, tp > 1}));
        },
        one_thread_reference);
  }
}

TEST(ColumnParallelLinear, IsThePlainProductCutByOutputs) {
  for (const int tp : {1, 2, 3}) {
    const Plain plain{.rows = 5, .in = 7, .out = 18};
    Gatherer gathered;
    run_ranks(
        tp,
        [&](World& world, Device& device) {
          TestRank rank(world, device, tp, kDouble);
          const auto built = build<ColumnParallelLinear>(
              rank, LinearOptions{.name = "fc1", .block = "b", .in = 7, .out = 18});
          const std::int64_t local = 18 / tp, start = local * world.rank();
          set_values(built->store.find("fc1.weight"), [](auto i) { return integer(i, 3); });
          set_values(built->store.find("fc1.bias"), [](auto i) { return integer(i, 2); });
          const HostTensor x(DType::kF64, {5, 7}, integers(35, 5)), y(DType::kF64, {5, local});
          const HostTensor d_y(DType::kF64, {5, local},
                               columns_of(integers(90, 4), 18, start, local));
          const HostTensor d_x(DType::kF64, {5, 7});
          const Pass pass = pass_of(rank, 5);
          ColumnParallelLinear::Context context;
          built->layer.forward(pass, context, *x, *y);
          built->layer.backward_input(pass, *d_y, *d_x);
          CopyToTensorParallel(*rank.context.tensor_parallel)
              .backward(*d_x, {.after = rank.context.compute})
              .work.wait(*rank.context.compute);
          built->layer.backward_weight(pass, context, *d_y);
          rank.context.compute->synchronize();

          std::vector<double> expected = plain.y_without_bias();
          for (std::size_t i = 0; i < expected.size(); ++i) {
            expected[i] += integer(static_cast<std::int64_t>(i) % 18, 2);
          }
          EXPECT_EQ(values_of(*y), columns_of(expected, 18, start, local));
          EXPECT_EQ(values_of(*d_x), plain.d_x());
          gathered.add(built->store, &Parameter::main_grad);
        },
        one_thread_reference);
    const Tensors gradients = gathered.take();
    EXPECT_EQ(gradients.at("fc1.weight"), plain.d_w());
    EXPECT_EQ(gradients.at("fc1.bias"), plain.d_b());
  }
}

TEST(RowParallelLinear, IsThePlainProductCutByInputs) {
  for (const int tp : {1, 2, 3}) {
    const Plain plain{.rows = 5, .in = 18, .out = 7};
    Gatherer gathered;
    run_ranks(
        tp,
        [&](World& world, Device& device) {
          TestRank rank(world, device, tp, kDouble);
          const auto built = build<RowParallelLinear>(
              rank, LinearOptions{.name = "fc2", .block = "b", .in = 18, .out = 7}, false);
          const std::int64_t local = 18 / tp, start = local * world.rank();
          set_values(built->store.find("fc2.weight"), [](auto i) { return integer(i, 3); });
          const HostTensor x(DType::kF64, {5, local},
                             columns_of(integers(90, 5), 18, start, local));
          const HostTensor y(DType::kF64, {5, 7}), d_y(DType::kF64, {5, 7}, integers(35, 4));
          const HostTensor d_x(DType::kF64, {5, local});
          const Pass pass = pass_of(rank, 5);
          RowParallelLinear::Context context;
          built->layer.forward(pass, context, *x, *y);
          ReduceFromTensorParallel(*rank.context.tensor_parallel)
              .forward(*y, {.after = rank.context.compute})
              .work.wait(*rank.context.compute);
          built->layer.backward_input(pass, *d_y, *d_x);
          built->layer.backward_weight(pass, context, *d_y);
          built->layer.backward_bias(pass, *d_y);
          rank.context.compute->synchronize();

          EXPECT_EQ(values_of(*y), plain.y_without_bias());
          EXPECT_EQ(values_of(*d_x), columns_of(plain.d_x(), 18, start, local));
          gathered.add(built->store, &Parameter::main_grad);
        },
        one_thread_reference);
    const Tensors gradients = gathered.take();
    EXPECT_EQ(gradients.at("fc2.weight"), plain.d_w());
    EXPECT_EQ(gradients.at("fc2.bias"), plain.d_b());
  }
}

// B52: added on each rank before the sum, the bias would come tp times.
TEST(RowParallelLinear, ItsBiasIsAddedOnceAfterTheReduction) {
  for (const int tp : {1, 2, 4}) {
    run_ranks(tp, [&](World& world, Device& device) {
      TestRank rank(world, device, tp, kFloat);
      const auto built = build<RowParallelLinear>(
          rank, LinearOptions{.name = "fc2", .block = "b", .in = 4, .out = 2}, false);
      const std::vector<double> w = {1, 0, 1, 2, 0, 1, 1, -1}, b = {10, 20};
      set_values(built->store.find("fc2.weight"),
                 [&](std::int64_t i) { return w[static_cast<std::size_t>(i)]; });
      set_values(built->store.find("fc2.bias"),
                 [&](std::int64_t i) { return b[static_cast<std::size_t>(i)]; });
      const std::int64_t local = 4 / tp;
      const HostTensor x(DType::kF32, {1, local},
                         columns_of({1, 2, 3, 4}, 4, local * world.rank(), local));
      const HostTensor partial(DType::kF32, {1, 2}), none(DType::kF32, {1, 2});
      const HostTensor y(DType::kF32, {1, 2});
      const Pass pass = pass_of(rank, 1);
      const TokenRegion region("block", false);
      RowParallelLinear::Context context;
      built->layer.forward(pass, context, *x, *partial);
      const auto left = region.leave(pass, *partial, Tensor());
      left.work.wait(pass.compute());
      device.bias_dropout_add(
          pass.compute(),
          {.branch = left.tensor, .bias = built->layer.bias(), .residual = *none, .out = *y});
      pass.compute().synchronize();
      EXPECT_EQ(values_of(*y), (std::vector<double>{22, 21}));
    });
  }
}

// B54
TEST(RowParallelLinear, ItsBiasGradientUnderSequenceParallelismIsSummedOverTokenShards) {
  run_ranks(2, [](World& world, Device& device) {
    TestRank rank(world, device, 2, kFloat);
    const auto built = build<RowParallelLinear>(
        rank, LinearOptions{.name = "fc2", .block = "b", .in = 4, .out = 2}, true);
    const Parameter& bias = built->store.find("fc2.bias");
    EXPECT_TRUE(bias.spec().partial_gradient);
    const HostTensor d_y(DType::kF32, {4, 2}, 1.0);
    const Pass pass = pass_of(rank, 8);
    built->layer.backward_bias(pass, *d_y);
    pass.compute().synchronize();
    EXPECT_EQ(values_of(bias.main_grad), (std::vector<double>{4, 4}));
    rank.context.tensor_parallel
        ->all_reduce(replicated_gradients(built->store), {.after = rank.context.compute})
        .wait_host();
    EXPECT_EQ(values_of(bias.main_grad), (std::vector<double>{8, 8}));
  });
}

// B56: without the reduction the ranks would hold [3, 11] and [7, 15].
TEST(ColumnParallelLinear, ItsInputGradientIsSummedOverRanks) {
  run_ranks(2, [](World& world, Device& device) {
    TestRank rank(world, device, 2, kFloat);
    const auto built = build<ColumnParallelLinear>(
        rank, LinearOptions{.name = "fc1", .block = "b", .in = 2, .out = 4, .bias = false});
    const std::vector<double> w = {1, 5, 2, 6, 3, 7, 4, 8};
    set_values(built->store.find("fc1.weight"),
               [&](std::int64_t i) { return w[static_cast<std::size_t>(i)]; });
    const HostTensor d_y(DType::kF32, {1, 2}, 1.0), d_x(DType::kF32, {1, 2});
    const Pass pass = pass_of(rank, 1);
    built->layer.backward_input(pass, *d_y, *d_x);
    pass.compute().synchronize();
    EXPECT_EQ(values_of(*d_x),
              world.rank() == 0 ? (std::vector<double>{3, 11}) : (std::vector<double>{7, 15}));
    TokenRegion("block", false).enter_backward(pass, *d_x, Tensor()).work.wait_host();
    EXPECT_EQ(values_of(*d_x), (std::vector<double>{10, 26}));
  });
}

}  // namespace

}  // namespace tandem::test
