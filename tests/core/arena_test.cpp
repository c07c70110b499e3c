// The arena counts first and allocates once: the two runs of the same code agree, to the byte.
#include "core/arena.h"

#include <gtest/gtest.h>

#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

constexpr auto kWeights = MemoryCategory::kWeights;
constexpr auto kWorkspace = MemoryCategory::kWorkspace;

TEST(Arena, MeasuringGivesTensorsWithoutMemoryAndCountsThem) {
  Arena arena;
  EXPECT_TRUE(arena.measuring());
  const Tensor tensor = arena.allocate(kWeights, "w", DType::kF32, {3, 5});
  EXPECT_EQ(tensor.data, nullptr);
  EXPECT_EQ(tensor.shape, (Shape{3, 5}));
  EXPECT_FALSE(tensor.absent());
  EXPECT_EQ(tensor.slice(0, 1, 2).data, nullptr) << "a part of nothing is nothing";
  EXPECT_EQ(arena.bytes(kWeights), 64u);
  EXPECT_EQ(arena.bytes(kWorkspace), 0u);
}

TEST(Arena, TheTableHasEveryAllocationByNameAndCategory) {
  Arena arena;
  arena.allocate(kWeights, "first", DType::kBF16, {32});
  arena.allocate(kWorkspace, "second", DType::kF64, {9});
  arena.allocate(kWeights, "third", DType::kF32, {17});
  ASSERT_EQ(arena.allocations().size(), 3u);
  EXPECT_EQ(arena.allocations()[1].name, "second");
  EXPECT_EQ(arena.allocations()[1].category, kWorkspace);
  EXPECT_EQ(arena.allocations()[1].bytes, 128u);
  EXPECT_EQ(arena.bytes(kWeights), 64u + 128u);
  EXPECT_EQ(arena.total(), 64u + 128u + 128u);
  EXPECT_EQ(name_of(MemoryCategory::kMainGrads), "main grads");
}

TEST(Arena, GivesAlignedZeroedMemoryThatDoesNotOverlap) {
  const auto device = make_cpu_device(1);
  const auto take = [](Arena& arena) {
    std::vector<Tensor> tensors;
    for (const std::int64_t n : {1, 100, 0, 16, 7}) {
      tensors.push_back(arena.allocate(kWorkspace, "t", DType::kF32, {n}));
    }
    return tensors;
  };
  Arena measured;
  take(measured);
  Arena arena(*device, measured);
  EXPECT_FALSE(arena.measuring());
  const std::vector<Tensor> tensors = take(arena);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensors[i].data) % 64, 0u);
    EXPECT_EQ(values_of(tensors[i]),
              std::vector<double>(static_cast<std::size_t>(tensors[i].numel()), 0.0));
    if (i > 0) {
      EXPECT_GE(tensors[i].data, tensors[i - 1].data + tensors[i - 1].bytes());
    }
  }
  EXPECT_EQ(arena.total(), measured.total());
}

TEST(Arena, RefusesMoreThanWasMeasuredNamingWhat) {
  const auto device = make_cpu_device(1);
  Arena measured;
  measured.allocate(kWeights, "w", DType::kF32, {16});
  Arena arena(*device, measured);
  arena.allocate(kWeights, "w", DType::kF32, {16});
  try {
    arena.allocate(kWeights, "one too many", DType::kF32, {1});
    FAIL() << "the arena grew";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("one too many"), std::string::npos) << error.what();
  }
  EXPECT_THROW(arena.allocate(kWorkspace, "other category", DType::kF32, {1}), InternalError);
}

struct WholeNetwork {
  WholeNetwork(Arena& arena, const NetworkOptions& options, const Precision& precision,
               const Layout& layout)
      : store(layout), network(store, options) {
    store.allocate(arena, precision, {.moments = 2});
    network.allocate(arena, precision, layout);
  }
  ParameterStore store;
  Network network;
};

TEST(Arena, AWholeNetworkTakesWhatWasMeasured) {
  const auto device = make_cpu_device(1);
  for (const bool sequence_parallel : {false, true}) {
    for (const Precision& precision : {kFloat, kBFloat, kDouble}) {
      const NetworkOptions options{.vocab = 10,
                                   .context = 3,
                                   .hidden = 4,
                                   .ffn = 8,
                                   .layers = 2,
                                   .activation = Activation::kSwiglu,
                                   .dropout = true,
                                   .sequence_parallel = sequence_parallel,
                                   .max_rows = 64};
      const Layout layout{.tp = 2, .dp = 1, .rank = 1};
      Arena measured;
      const WholeNetwork counted(measured, options, precision, layout);
      Arena arena(*device, measured);
      const WholeNetwork real(arena, options, precision, layout);
      for (std::size_t c = 0; c < kMemoryCategories; ++c) {
        const auto category = static_cast<MemoryCategory>(c);
        EXPECT_EQ(arena.bytes(category), measured.bytes(category)) << name_of(category);
      }
      EXPECT_EQ(arena.allocations().size(), measured.allocations().size());
      EXPECT_THROW(arena.allocate(kWorkspace, "more", DType::kF32, {1}), InternalError);
      EXPECT_EQ(arena.bytes(MemoryCategory::kCommunication) > 0, sequence_parallel);
    }
  }
}

}  // namespace

}  // namespace tandem::test
