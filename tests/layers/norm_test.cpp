#include "layers/norm.h"

#include <gtest/gtest.h>

#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

struct NormAlone {
  NormAlone(const Layout& layout, const Norm::Options& options)
      : store(layout), norm(store, options) {}
  ParameterStore store;
  Norm norm;
  Norm::Context context;
};

// B62: tokens 1 to 8 contribute 1 to 8 to the weight's gradient; ranks alone hold 10 and 26.
TEST(Norm, ItsWeightGradientUnderSequenceParallelismIsSummedOverTokenShards) {
  run_ranks(2, [](World& world, Device& device) {
    TestRank rank(world, device, 2, kFloat);
    const Norm::Options options{.name = "norm",
                                .kind = NormKind::kRmsNorm,
                                .hidden = 1,
                                .eps = 0.0,
                                .partial_gradient = true};
    const Built<NormAlone> built(device, [&](Arena& arena) {
      auto alone = std::make_unique<NormAlone>(rank.context.layout, options);
      alone->store.allocate(arena, kFloat, {});
      alone->context = alone->norm.make_context(arena, kFloat, 4);
      return alone;
    });
    const Parameter& weight = built->store.find("norm.weight");
    set_values(weight, [](std::int64_t) { return 1.0; });
    const double first = 1.0 + 4.0 * world.rank();
    const HostTensor x(DType::kF32, {4, 1}, 2.0), y(DType::kF32, {4, 1});
    const HostTensor d_y(DType::kF32, {4, 1}, {first, first + 1, first + 2, first + 3});
    const HostTensor d_x(DType::kF32, {4, 1});
    const Pass pass{.rank = &rank.context, .rows = 8};
    built->norm.forward(pass, built->context, *x, *y);
    built->norm.backward(pass, built->context, *d_y, Tensor(), *d_x);
    pass.compute().synchronize();
    EXPECT_EQ(values_of(*y), (std::vector<double>{1, 1, 1, 1}));
    EXPECT_EQ(get(weight.main_grad, 0), world.rank() == 0 ? 10.0 : 26.0);
    rank.context.tensor_parallel
        ->all_reduce(replicated_gradients(built->store), {.after = rank.context.compute})
        .wait_host();
    EXPECT_EQ(get(weight.main_grad, 0), 36.0);
  });
}

}  // namespace

}  // namespace tandem::test
