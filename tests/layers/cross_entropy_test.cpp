// The softmax spans the whole vocabulary however it is cut.
#include "layers/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

struct Loss {
  double sum = 0.0;
  std::vector<double> gradient;  ///< [rows, vocab]
};

/// Cross-entropy of [rows, vocab] logits over tp ranks. Columns that pad the vocabulary hold
/// `padding`, which must not matter; their gradients are expected to be exactly 0.
Loss cross_entropy(int tp, std::int64_t vocab, const std::vector<double>& logits,
                   const std::vector<double>& targets, double scale = 1.0, double padding = 50.0) {
  const auto rows = std::ssize(targets);
  std::vector<Loss> losses(static_cast<std::size_t>(tp));
  Gatherer gatherer;
  run_ranks(tp, [&](World& world, Device& device) {
    TestRank rank(world, device, tp, kFloat);
    // How the head's rows are cut says how the logits' columns are.
    const Parameter head({.name = "head", .shape = {vocab, 1}, .cut_dimension = 0},
                         rank.context.layout, 0);
    const std::int64_t local = head.local_shape()[0];
    const HostTensor own(DType::kF32, {rows, local}, padding);
    for (std::int64_t r = 0; r < rows; ++r) {
      head.for_each_run([&](std::int64_t at, std::int64_t global, std::int64_t length) {
        for (std::int64_t i = 0; i < length; ++i) {
          put(*own, r * local + at + i, logits[static_cast<std::size_t>(r * vocab + global + i)]);
        }
      });
    }
    const HostTensor ids(DType::kI32, {rows}, targets), loss_sum(DType::kF64, {1});
    const Built<VocabParallelCrossEntropy::Context> context(device, [&](Arena& arena) {
      return std::make_unique<VocabParallelCrossEntropy::Context>(
          VocabParallelCrossEntropy::make_context(arena, kFloat, rows));
    });
    const Pass pass{.rank = &rank.context, .rows = rows};
    VocabParallelCrossEntropy::apply(pass, *context,
                                     {.logits = *own,
                                      .targets = *ids,
                                      .vocab_start = head.cut_start(),
                                      .valid_columns = head.cut_valid(),
                                      .scale = scale,
                                      .d_logits = *own,
                                      .loss_sum = *loss_sum});
    pass.compute().synchronize();

    Loss& loss = losses[static_cast<std::size_t>(world.rank())];
    loss.sum = get(*loss_sum, 0);
    loss.gradient.assign(static_cast<std::size_t>(rows * vocab), 0.0);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < local; ++c) {
        const double gradient = get(*own, r * local + c);
        if (c < head.cut_valid()) {
          loss.gradient[static_cast<std::size_t>(r * vocab + head.cut_start() + c)] = gradient;
        } else {
          EXPECT_EQ(gradient, 0.0) << "padded column " << c << " of rank " << world.rank();
        }
      }
    }
  });
  Loss whole = losses[0];
  for (std::size_t r = 1; r < losses.size(); ++r) {
    EXPECT_EQ(losses[r].sum, whole.sum) << "the ranks' losses differ";
    for (std::size_t i = 0; i < whole.gradient.size(); ++i) {
      whole.gradient[i] += losses[r].gradient[i];  // zero where another rank owns the column
    }
  }
  return whole;
}

constexpr int kRanks[] = {1, 2, 4};

// B14: a softmax over one rank's columns would give 1.3132617.
TEST(VocabParallelCrossEntropy, SpansTheColumnsOfAllRanks) {
  for (const int tp : kRanks) {
    const Loss loss = cross_entropy(tp, 4, {1, 2, 3, 4}, {2});
    EXPECT_NEAR(loss.sum, 1.4401897, 1e-6);
    const std::vector<double> expected = {0.0320586, 0.0871443, -0.7631172, 0.6439143};
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(loss.gradient[i], expected[i], 1e-6) << "tp " << tp << " column " << i;
    }
  }
}

// B16
TEST(VocabParallelCrossEntropy, RanksWithoutTheTargetHaveGradientsToo) {
  for (const int tp : kRanks) {
    EXPECT_EQ(cross_entropy(tp, 4, {5, 5, 5, 5}, {0}).gradient,
              (std::vector<double>{-0.75, 0.25, 0.25, 0.25}));
  }
}

// B18: two padded columns at four ranks; unmasked they would make it ln 12.
TEST(VocabParallelCrossEntropy, PaddedColumnsTakeNoPart) {
  for (const int tp : kRanks) {
    for (const double padding : {0.0, 50.0}) {
      const Loss loss = cross_entropy(tp, 10, std::vector<double>(10, 0.0), {9}, 1.0, padding);
      EXPECT_NEAR(loss.sum, 2.3025851, 1e-6) << "tp " << tp;
      EXPECT_NEAR(loss.gradient[0], 0.1, 1e-7);
      EXPECT_NEAR(loss.gradient[9], -0.9, 1e-7);
    }
  }
}

// A vocabulary so small that a rank has none of it.
TEST(VocabParallelCrossEntropy, ARankMayHoldPaddingOnly) {
  EXPECT_NEAR(cross_entropy(4, 5, std::vector<double>(5, 0.0), {4}).sum, std::log(5.0), 1e-6);
}

// B10, B13: ignored targets have no loss, no gradient and make no NaN.
TEST(VocabParallelCrossEntropy, IgnoredTargetsHaveNoLossAndNoGradient) {
  for (const int tp : kRanks) {
    const Loss ignored = cross_entropy(tp, 4, {1, 2, 3, 4, 4, 3, 2, 1}, {-1, -1});
    EXPECT_EQ(ignored.sum, 0.0);
    EXPECT_EQ(ignored.gradient, std::vector<double>(8, 0.0));
  }
  // Four tokens of loss 1.5 each beside ignored ones: the mean over tokens is 1.5.
  const double d = std::log(std::exp(1.5) - 1.0);
  const Loss mixed =
      cross_entropy(2, 2, {d, 0, d, 0, 9, 1, d, 0, 0, 3, d, 0}, {1, 1, -1, 1, -1, 1});
  EXPECT_NEAR(mixed.sum / 4.0, 1.5, 1e-6);
}

TEST(VocabParallelCrossEntropy, ScalesTheGradientAndNotTheLoss) {
  for (const int tp : kRanks) {
    const Loss loss = cross_entropy(tp, 4, {5, 5, 5, 5}, {0}, 0.5);
    EXPECT_NEAR(loss.sum, std::log(4.0), 1e-6);
    EXPECT_EQ(loss.gradient, (std::vector<double>{-0.375, 0.125, 0.125, 0.125}));
  }
}

TEST(VocabParallelCrossEntropy, LargeLogitsDoNotOverflow) {
  for (const int tp : kRanks) {
    const Loss loss = cross_entropy(tp, 4, {-1e30, 1000, 999, 1000}, {1});
    EXPECT_NEAR(loss.sum, std::log(2.0 + std::exp(-1.0)), 1e-6);
  }
}

}  // namespace

}  // namespace tandem::test
