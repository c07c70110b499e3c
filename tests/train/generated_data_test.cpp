// The corpus and the inputs that are generated: functions of (seed, place) alone, with the
// statistics that they promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/philox.h"
#include "tests/train/data_test_util.h"
#include "train/data/synthetic.h"

namespace tandem {
namespace {

std::vector<std::int32_t> tokens_of(const TokenStore& store, std::int64_t begin,
                                    std::int64_t count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  store.read(begin, tokens);
  return tokens;
}

TEST(SyntheticTokens, AnyPartReadsAsInTheWhole) {
  const SyntheticTokens store(7, 100, 16);
  const auto whole = tokens_of(store, 0, 500);
  for (const std::int64_t begin : {0, 1, 17, 100, 333}) {
    const auto part = tokens_of(store, begin, 90);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
  }
  EXPECT_NE(tokens_of(SyntheticTokens(8, 100, 16), 0, 500), whole);
}

TEST(SyntheticTokens, EachTokenHasAtMostFourSuccessorsAndTheFirstIsTakenHalfTheTime) {
  const SyntheticTokens store(7, 50, 64);
  const auto starts = store.document_starts();
  std::vector<std::map<std::int32_t, int>> counts(50);
  for (std::size_t d = 0; d < 1000; ++d) {
    const auto tokens = tokens_of(store, starts[d], starts[d + 1] - starts[d]);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      ASSERT_TRUE(tokens[t] >= 0 && tokens[t] < 50);
      if (t > 0) {
        ++counts[static_cast<std::size_t>(tokens[t - 1])][tokens[t]];
      }
    }
  }
  for (const auto& successors : counts) {
    int total = 0, most = 0;
    for (const auto& [token, count] : successors) {
      total += count;
      most = std::max(most, count);
    }
    EXPECT_LE(successors.size(), 4u);
    if (total > 500) {
      EXPECT_GT(most, 0.4 * total);
    }
  }
}

TEST(SyntheticTokens, DocumentsAreShortFullAndContinued) {
  for (const std::int64_t seq_len : {1, 2, 16, 256}) {
    const SyntheticTokens store(7, 50, seq_len);
    const auto starts = store.document_starts();
    std::int64_t shortest = 1 << 30, longest = 0;
    for (std::size_t d = 0; d + 1 < starts.size(); ++d) {
      shortest = std::min(shortest, starts[d + 1] - starts[d]);
      longest = std::max(longest, starts[d + 1] - starts[d]);
    }
    EXPECT_GE(shortest, 2) << seq_len;
    if (seq_len >= 16) {
      EXPECT_EQ(shortest, seq_len / 4);
      EXPECT_EQ(longest, seq_len * 5 / 4);
    }
  }
}

TEST(SyntheticTokens, TrainLikeAnyCorpus) {
  Config config = testing::text_config("", 16);
  config.data.format = DataFormat::kSynthetic;
  config.data.valid_fraction = 0.1;
  config.model.vocab_size = 40;
  for (const Documents documents : {Documents::kPadded, Documents::kPacked}) {
    config.data.documents = documents;
    const auto source = make_data_source(config, Layout{});
    EXPECT_GT(source->fetch_step(5)[0].tokens, 0);
    EXPECT_GT(source->evaluation_batches(), 500);
  }
}

Config noise_config(int tp, int dp) {
  Config config;
  config.seed = 99;
  config.model.kind = ModelKind::kFfn;
  config.model.hidden = 10;  // no multiple of eight: the last block of a row is cut
  config.data.seq_len = 5;
  config.parallel.tp = tp;
  config.parallel.dp = dp;
  config.train.micro_batch = 2;
  config.train.global_batch = 4;
  return config;
}

/// The deviate that the documented rule picks for a column of a row.
double expected_deviate(std::uint32_t stream, std::int64_t key, std::size_t column) {
  const auto block = static_cast<std::uint64_t>(key) * 2 + column / 8;  // ceil(10 / 8) blocks a row
  const PhiloxBlock draw = philox_draw(99, RandomUse::kSynthetic, stream, block);
  const std::uint32_t pick = (draw.x[column % 8 / 2] >> (16 * (column % 2))) & 0xffffu;
  return philox_normals(99, RandomUse::kSynthetic, 18, pick / 4)[pick % 4];
}

TEST(NoiseSource, ValuesAreDeviatesOfTheirGlobalPlace) {
  const auto source = make_data_source(noise_config(1, 1), Layout{}, {.storage = DType::kF64});
  const auto step = source->fetch_step(4);
  ASSERT_EQ(step.size(), 2u);
  const MicroBatch& batch = step[1];  // samples 6 and 7
  EXPECT_EQ(batch.rows, 64);
  EXPECT_EQ(batch.tokens, 10);
  const auto keys = batch.row_keys.span<std::int64_t>();
  EXPECT_EQ(keys[0], 30);
  EXPECT_EQ(keys[9], 39);
  EXPECT_EQ(keys[10], -1);
  for (std::size_t r = 0; r < 10; ++r) {
    for (std::size_t c = 0; c < 10; ++c) {
      EXPECT_EQ(batch.input.span<double>()[r * 10 + c], expected_deviate(16, keys[r], c));
      EXPECT_EQ(batch.expected.span<double>()[r * 10 + c], expected_deviate(17, keys[r], c));
    }
  }
  for (const double padding : batch.input.span<double>().subspan(100)) {
    EXPECT_EQ(padding, 0.0);
  }
}

TEST(NoiseSource, RoundsOnceToTheStorageType) {
  const Config config = noise_config(1, 1);
  const auto exact = make_data_source(config, Layout{}, {.storage = DType::kF64});
  const auto single = make_data_source(config, Layout{}, {.storage = DType::kF32});
  const auto half = make_data_source(config, Layout{}, {.storage = DType::kBF16});
  const auto d = exact->fetch_step(0)[0].input.span<double>();
  const auto f = single->fetch_step(0)[0].input.span<float>();
  const auto b = half->fetch_step(0)[0].input.span<BFloat16>();
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(f[i], static_cast<float>(d[i]));
    EXPECT_EQ(b[i].bits, BFloat16(d[i]).bits);
  }
}

TEST(NoiseSource, IsTheSameForAnyLayoutAndThreadCount) {
  const auto one = make_data_source(noise_config(1, 1), Layout{}, {.threads = 1});
  const auto step = one->fetch_step(8);
  for (int rank = 0; rank < 4; ++rank) {
    const auto source = make_data_source(noise_config(2, 2), Layout{.tp = 2, .dp = 2, .rank = rank},
                                         {.threads = 3});
    const auto part = source->fetch_step(8);
    ASSERT_EQ(part.size(), 1u);
    const auto& same = step[static_cast<std::size_t>(rank / 2)];
    EXPECT_TRUE(std::ranges::equal(part[0].input.span<float>(), same.input.span<float>()));
    EXPECT_TRUE(std::ranges::equal(part[0].expected.span<float>(), same.expected.span<float>()));
  }
}

TEST(NoiseSource, HasZeroMeanAndUnitVariance) {
  Config config = noise_config(1, 1);
  config.model.hidden = 256;
  config.data.seq_len = 64;
  const auto source = make_data_source(config, Layout{});
  const MicroBatch& batch = source->fetch_step(0)[0];
  const auto input = batch.input.span<float>();
  const auto expected = batch.expected.span<float>();
  double sum = 0, squares = 0, product = 0;
  for (std::size_t i = 0; i < input.size(); ++i) {
    sum += input[i];
    squares += static_cast<double>(input[i]) * input[i];
    product += static_cast<double>(input[i]) * expected[i];
  }
  const auto n = static_cast<double>(input.size());  // 32768: five sigma of a mean is 0.028
  EXPECT_NEAR(sum / n, 0, 0.028);
  EXPECT_NEAR(squares / n, 1, 0.04);
  EXPECT_NEAR(product / n, 0, 0.028);
}

}  // namespace
}  // namespace tandem
