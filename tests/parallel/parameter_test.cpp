// How parameters are cut, padded, laid out in memory and drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "parallel/parameter_store.h"
#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

constexpr std::uint64_t kSeed = 1234;

Parameter cut(const ParameterSpec& spec, int tp, int rank) {
  return {spec, {.tp = tp, .dp = 1, .rank = rank}, 0};
}

/// This rank's part of a whole tensor; padding is -1.
std::vector<double> part_of(const std::vector<double>& whole, const Parameter& parameter) {
  std::vector<double> local(static_cast<std::size_t>(parameter.local_shape().numel()), -1.0);
  parameter.for_each_run([&](std::int64_t to, std::int64_t from, std::int64_t length) {
    std::copy_n(whole.begin() + from, length, local.begin() + to);
  });
  return local;
}

/// The whole tensor from the parts of all ranks; every element comes exactly once.
std::vector<double> whole_of(const std::vector<std::vector<double>>& parts,
                             const ParameterSpec& spec) {
  std::vector<double> whole(static_cast<std::size_t>(spec.shape.numel()), -2.0);
  const int tp = static_cast<int>(parts.size());
  for (int rank = 0; rank < tp; ++rank) {
    const auto& part = parts[static_cast<std::size_t>(rank)];
    cut(spec, tp, rank).for_each_run([&](std::int64_t from, std::int64_t to, std::int64_t length) {
      for (std::int64_t i = 0; i < length; ++i) {
        double& element = whole[static_cast<std::size_t>(to + i)];
        EXPECT_EQ(element, -2.0) << "element " << to + i << " comes twice";
        element = part[static_cast<std::size_t>(from + i)];
      }
    });
  }
  return whole;
}

std::vector<std::vector<double>> parts_of(const std::vector<double>& whole,
                                          const ParameterSpec& spec, int tp) {
  std::vector<std::vector<double>> parts;
  for (int rank = 0; rank < tp; ++rank) {
    parts.push_back(part_of(whole, cut(spec, tp, rank)));
  }
  return parts;
}

std::vector<double> counted(const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0.0);
  return values;
}

// B88: gate and up are cut each on its own. Rows g0..g3 are 0..3, u0..u3 are 4..7.
TEST(Parameter, FusedPartsAreCutEachOnItsOwn) {
  const ParameterSpec spec{.name = "fc1.weight", .shape = {8, 1}, .cut_dimension = 0, .parts = 2};
  const std::vector<double> whole = counted(spec.shape);
  using Parts = std::vector<std::vector<double>>;
  EXPECT_EQ(parts_of(whole, spec, 1), (Parts{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(parts_of(whole, spec, 2), (Parts{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(parts_of(whole, spec, 4), (Parts{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

// B88, B95: through every number of ranks and back, with sizes that do not divide.
TEST(Parameter, EveryElementIsOnExactlyOneRank) {
  const std::vector<ParameterSpec> specs = {
      {.name = "fused", .shape = {8, 3}, .cut_dimension = 0, .parts = 2},
      {.name = "rows", .shape = {10, 3}, .cut_dimension = 0},
      {.name = "columns", .shape = {3, 10}, .cut_dimension = 1},
      {.name = "embedding", .shape = {3, 10, 2}, .cut_dimension = 1},
      {.name = "bias", .shape = {5}, .cut_dimension = 0},
      {.name = "fused bias", .shape = {6}, .cut_dimension = 0, .parts = 2}};
  for (const ParameterSpec& spec : specs) {
    std::vector<double> values = counted(spec.shape);
    const std::vector<double> original = values;
    for (const int tp : {1, 2, 4, 3, 8, 1}) {
      values = whole_of(parts_of(values, spec, tp), spec);
      EXPECT_EQ(values, original) << spec.name << " at tp " << tp;
    }
  }
}

// B66, B95: local sizes are equal; padding is on no list of runs.
TEST(Parameter, SizesThatDoNotDivideArePaddedButNeverCounted) {
  std::int64_t real = 0;
  for (int rank = 0; rank < 8; ++rank) {
    const Parameter head = cut({.name = "head", .shape = {250682, 1}, .cut_dimension = 0}, 8, rank);
    EXPECT_EQ(head.local_shape()[0] * 8, 250688);
    real += head.cut_valid();
    head.for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
      EXPECT_EQ(local, 0);
      EXPECT_EQ(global, head.cut_start());
      EXPECT_LE(global + length, 250682);
    });
  }
  EXPECT_EQ(real, 250682);
}

TEST(Parameter, ARankMayHoldPaddingOnly) {
  const Parameter last = cut({.name = "head", .shape = {5, 1}, .cut_dimension = 0}, 4, 3);
  EXPECT_EQ(last.local_shape()[0], 2);
  EXPECT_EQ(last.cut_valid(), 0);
  last.for_each_run([](auto, auto, auto) { FAIL() << "a run of padding"; });
}

NetworkOptions options_of(std::int64_t vocab) {
  return {.vocab = vocab,
          .context = 2,
          .hidden = 8,
          .ffn = 32,
          .layers = 2,
          .activation = Activation::kSwiglu,
          .max_rows = 4};
}

/// A network's initial weights on one rank of `tp`.
Built<ParameterStore> initial(Device& device, const NetworkOptions& options, const Layout& layout,
                              const Precision& precision, int threads) {
  Built<ParameterStore> store(device, [&](Arena& arena) {
    auto made = std::make_unique<ParameterStore>(layout);
    const Network network(*made, options);  // only adds its parameters
    made->allocate(arena, precision, {.moments = 2});
    return made;
  });
  const auto stream = device.make_stream("init");
  store->initialize(device, *stream, kSeed, threads);
  return store;
}

Tensors gathered_weights(const NetworkOptions& options, int tp, const Precision& precision,
                         int threads) {
  const auto device = precision.main == DType::kF64 ? make_reference_device(1) : make_cpu_device(1);
  Gatherer gatherer;
  for (int rank = 0; rank < tp; ++rank) {
    gatherer.add(*initial(*device, options, {.tp = tp, .dp = 1, .rank = rank}, precision, threads),
                 &Parameter::weight);
  }
  return gatherer.take();
}

// B43, B47: the gatherer expects the same bits of replicated parameters from every rank.
TEST(InitialWeights, AreTheSameBitsForEveryLayoutAndThreadCount) {
  const NetworkOptions options = options_of(1001);
  const Tensors alone = gathered_weights(options, 1, kFloat, 1);
  EXPECT_EQ(alone.at("head.weight").size(), 1001u * 8u);
  for (const int tp : {1, 2, 4}) {
    for (const int threads : {1, 2}) {
      EXPECT_EQ(gathered_weights(options, tp, kFloat, threads), alone) << tp << " " << threads;
    }
  }
}

TEST(InitialWeights, AreTheSameBitsInPiecesOfTheHost) {
  const NetworkOptions options = options_of(80001);
  const Tensors alone = gathered_weights(options, 1, kFloat, 1);
  ASSERT_GT(alone.at("embed.weight").size(), static_cast<std::size_t>(4 * kHostPiece));
  EXPECT_EQ(gathered_weights(options, 2, kFloat, 2), alone);
}

TEST(InitialWeights, AreTheSameMastersForEveryPrecision) {
  const NetworkOptions options = options_of(10);
  const Tensors masters = gathered_weights(options, 2, kFloat, 1);
  EXPECT_EQ(gathered_weights(options, 1, kDouble, 1), masters);
  const auto device = make_cpu_device(1);
  const auto bf16 = initial(*device, options, {}, kBFloat, 1);
  for (const Parameter& parameter : bf16->parameters()) {
    EXPECT_EQ(values_of(parameter.shards.front().master), masters.at(parameter.name()));
  }
  const Tensors stored = gathered_weights(options, 2, kBFloat, 1);
  for (const auto& [name, values] : masters) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(stored.at(name)[i], static_cast<double>(BFloat16(values[i]))) << name;
    }
  }
}

TEST(InitialWeights, HaveTheSpreadTheyShould) {
  const Tensors weights = gathered_weights(options_of(1000), 2, kFloat, 1);
  const auto deviation = [&](const std::string& name) {
    double squares = 0.0;
    for (const double value : weights.at(name)) {
      squares += value * value;
    }
    return std::sqrt(squares / static_cast<double>(weights.at(name).size()));
  };
  EXPECT_NEAR(deviation("embed.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("head.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("layers.1.fc1.weight"), 0.02, 0.003);
  EXPECT_NEAR(deviation("layers.0.fc2.weight"), 0.01, 0.002);  // 0.02 / sqrt(2 * 2 layers)
  EXPECT_EQ(weights.at("layers.0.norm.weight"), std::vector<double>(8, 1.0));
  EXPECT_EQ(weights.at("layers.0.norm.bias"), std::vector<double>(8, 0.0));
  EXPECT_EQ(weights.at("layers.0.fc1.bias"), std::vector<double>(64, 0.0));
}

// B45: shards are not copies of each other; nor are the layers.
TEST(InitialWeights, ShardsAndLayersDiffer) {
  NetworkOptions options = options_of(1000);
  options.hidden = 64;
  options.ffn = 64;
  const auto device = make_cpu_device(1);
  const auto first = initial(*device, options, {.tp = 2, .dp = 1, .rank = 0}, kFloat, 1);
  const auto second = initial(*device, options, {.tp = 2, .dp = 1, .rank = 1}, kFloat, 1);
  const auto correlation = [](const Tensor& a, const Tensor& b) {
    double ab = 0.0, aa = 0.0, bb = 0.0;
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      const double x = get(a.flat(), i), y = get(b.flat(), i);
      ab += x * y;
      aa += x * x;
      bb += y * y;
    }
    return std::abs(ab) / std::sqrt(aa * bb);
  };
  for (const char* name :
       {"embed.weight", "layers.0.fc1.weight", "layers.0.fc2.weight", "head.weight"}) {
    EXPECT_LT(correlation(first->find(name).weight, second->find(name).weight), 0.05) << name;
  }
  EXPECT_LT(correlation(first->find("layers.0.fc1.weight").weight,
                        first->find("layers.1.fc1.weight").weight),
            0.05);
}

// B46: data ranks hold the same cut; every bit of the flat buffers agrees.
TEST(InitialWeights, DataRanksAreCopies) {
  const auto device = make_cpu_device(1);
  const NetworkOptions options = options_of(10);
  const auto first = initial(*device, options, {.tp = 2, .dp = 2, .rank = 1}, kFloat, 1);
  const auto second = initial(*device, options, {.tp = 2, .dp = 2, .rank = 3}, kFloat, 1);
  ASSERT_EQ(first->buckets().size(), second->buckets().size());
  for (std::size_t i = 0; i < first->buckets().size(); ++i) {
    const Tensor a = first->buckets()[i].weight, b = second->buckets()[i].weight;
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()), 0);
  }
}

// B95: padded rows of the vocabulary hold zeros and are not parameters.
TEST(InitialWeights, PaddedRowsAreZeroAndUncounted) {
  NetworkOptions options = options_of(65535);
  options.hidden = 1;
  const auto device = make_cpu_device(1);
  const auto store = initial(*device, options, {.tp = 2, .dp = 1, .rank = 1}, kFloat, 1);
  const Parameter& head = store->find("head.weight");
  EXPECT_EQ(head.local_shape(), (Shape{32768, 1}));
  EXPECT_EQ(head.cut_valid(), 32767);
  EXPECT_EQ(get(head.weight, 32767), 0.0);
  EXPECT_NE(get(head.weight, 32766), 0.0);
  EXPECT_EQ(get(store->find("embed.weight").weight, 32767), 0.0);
  const std::int64_t block = 1 + 1 + 64 + 64 + 32 + 1;
  EXPECT_EQ(store->global_count(), 2 * 65535 + 2 * block + 2 + 65535);
}

TEST(ParameterStore, VectorsFollowMatricesReplicatedOnesFirst) {
  const auto device = make_cpu_device(1);
  const auto store = initial(*device, options_of(10), {.tp = 2, .dp = 1, .rank = 0}, kFloat, 1);
  const auto inside = [](const Tensor& part, const Tensor& whole) {
    return part.data >= whole.data && part.data + part.bytes() <= whole.data + whole.bytes();
  };
  ASSERT_EQ(store->owned().size(), 3u);
  for (const Parameter& parameter : store->parameters()) {
    for (const OwnedRange& owned : store->owned()) {
      EXPECT_EQ(inside(parameter.main_grad, owned.range.main_grad),
                owned.matrices == parameter.is_matrix() &&
                    owned.replicated == (!parameter.is_matrix() && !parameter.is_cut()))
          << parameter.name();
    }
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parameter.weight.data) % 64, 0u) << parameter.name();
  }
  // What is used last comes first: backward completes it first.
  EXPECT_EQ(store->find("head.weight").main_grad.data, store->buckets().front().main_grad.data);
}

// Sizes that are multiples of a place's 32 elements lie close together, others are rounded up.
TEST(ParameterStore, HasNoMoreGapsThanPlacesNeed) {
  ParameterStore store({});
  store.add({.name = "a", .shape = {8, 4}, .block = "a"});
  store.add({.name = "b", .shape = {3, 11}, .block = "b"});
  store.add({.name = "c", .shape = {32}});
  store.add({.name = "d", .shape = {1}});
  Arena measured;
  store.allocate(measured, kFloat, {});
  EXPECT_EQ(store.owned()[0].range.weight.numel(), 32 + 64);
  EXPECT_EQ(store.owned()[1].range.weight.numel(), 32 + 32);
  EXPECT_EQ(measured.total(), 4u * (96 + 64) * 2);
}

TEST(ParameterStore, RefusesWhatComesTooLate) {
  const auto device = make_cpu_device(1);
  const auto store = initial(*device, options_of(10), {}, kFloat, 1);
  EXPECT_THROW(store->add({.name = "late", .shape = {1}}), InternalError);
  Arena arena;
  EXPECT_THROW(store->allocate(arena, kFloat, {}), InternalError);
  EXPECT_THROW(store->find("nothing"), InternalError);
}

/// The store of one data rank, with masters of their own type and two moments.
std::unique_ptr<ParameterStore> measured_store(Arena& arena, const Layout& layout,
                                               const StoreOptions& options) {
  auto store = std::make_unique<ParameterStore>(layout);
  store->add({.name = "embed", .shape = {2, 10, 3}, .cut_dimension = 1, .block = "embed"});
  store->add({.name = "w", .shape = {70, 9}, .cut_dimension = 0, .parts = 2, .block = "w"});
  store->add({.name = "norm", .shape = {9}});
  store->add({.name = "b", .shape = {70}, .cut_dimension = 0, .parts = 2});
  store->allocate(arena, kBFloat, options);
  return store;
}

// Whatever the buckets, over the data ranks every element has one owner, and all own as much.
TEST(ShardedStore, EveryElementHasOneOwner) {
  for (const int tp : {1, 2}) {
    for (const int dp : {1, 2, 3, 4, 8}) {
      for (const std::int64_t bucket : {1, 100, 1 << 20}) {
        std::map<std::string, std::vector<int>> owners;
        std::set<std::size_t> optimizer_bytes;
        for (int rank = 0; rank < dp; ++rank) {
          Arena arena;
          const auto store =
              measured_store(arena, {.tp = tp, .dp = dp, .rank = rank * tp},
                             {.moments = 2, .sharded = true, .bucket_elements = bucket});
          optimizer_bytes.insert(arena.bytes(MemoryCategory::kOptimizer));
          for (const Parameter& parameter : store->parameters()) {
            auto& count = owners[parameter.name()];
            count.resize(static_cast<std::size_t>(parameter.local_shape().numel()), 0);
            for (const ParameterShard& shard : parameter.shards) {
              EXPECT_EQ(shard.exp_avg_sq.numel(), shard.master.numel());
              for (std::int64_t i = shard.start; i < shard.stop(); ++i) {
                ++count.at(static_cast<std::size_t>(i));
              }
            }
          }
        }
        EXPECT_EQ(optimizer_bytes.size(), 1u);
        for (const auto& [name, count] : owners) {
          EXPECT_THAT(count, testing::Each(1)) << name << " tp " << tp << " dp " << dp;
        }
      }
    }
  }
}

// Two bytes of weight and four of gradient on every rank, twelve of master and moments over all.
TEST(ShardedStore, TakesSixBytesAParameterAndTwelveOverTheDataRanks) {
  for (const int dp : {1, 2, 4, 8}) {
    Arena arena;
    ParameterStore store(Layout{.tp = 1, .dp = dp, .rank = dp - 1});
    store.add({.name = "w", .shape = {1024, 64}, .block = "w"});
    store.allocate(arena, kBFloat, {.moments = 2, .sharded = true});
    EXPECT_EQ(arena.total(),
              1024u * 64u * (6u * static_cast<unsigned>(dp) + 12u) / static_cast<unsigned>(dp));
  }
}

TEST(ShardedStore, ARankMayOwnPaddingOnly) {
  Arena arena;
  ParameterStore store(Layout{.tp = 1, .dp = 4, .rank = 3});
  store.add({.name = "w", .shape = {2, 3}, .block = "w"});
  store.allocate(arena, kBFloat, {.moments = 2, .sharded = true});
  EXPECT_TRUE(store.find("w").shards.empty());
  EXPECT_EQ(store.owned().front().range.master.numel(), 32);
}

TEST(ParameterStore, ALargeBlockIsSeveralBuckets) {
  Arena arena;
  const auto store = measured_store(arena, {}, {.bucket_elements = 256});
  std::vector<std::string> names;
  for (const GradientBucket& bucket : store->buckets()) {
    names.push_back(bucket.name);
    EXPECT_LE(bucket.main_grad.numel(), 256);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"w (1 of 3)", "w (2 of 3)", "w (3 of 3)", "embed",
                                             "vectors"}));
  EXPECT_EQ(store->find("w").first_bucket(), 0u);
  EXPECT_EQ(store->find("w").last_bucket(), 2u);
}

TEST(ParameterStore, MastersAreTheWeightsWhereTheTypesAgree) {
  const auto device = make_cpu_device(1);
  const auto fp32 = initial(*device, options_of(10), {}, kFloat, 1);
  const ParameterRange& same = fp32->owned()[0].range;
  EXPECT_EQ(same.master.data, same.weight.data);
  const auto bf16 = initial(*device, options_of(10), {}, kBFloat, 1);
  const ParameterRange& own = bf16->owned()[0].range;
  EXPECT_NE(own.master.data, own.weight.data);
  EXPECT_EQ(own.master.dtype, DType::kF32);
  EXPECT_EQ(own.weight.dtype, DType::kBF16);
}

}  // namespace

}  // namespace tandem::test
