// The statements of docs/maths.md that no other test shows, and the answers to its exercises, with
// numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "optim/gradient_norm.h"
#include "parallel/operators.h"
#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

/// A matrix that counts the multiplications of its products.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;
};

Matrix product(const Matrix& a, const Matrix& b, std::int64_t& multiplications) {
  Matrix c{a.rows, b.columns, std::vector<double>(static_cast<std::size_t>(a.rows * b.columns))};
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < b.columns; ++j) {
      for (std::int64_t k = 0; k < a.columns; ++k) {
        c.values[static_cast<std::size_t>(i * b.columns + j)] +=
            a.values[static_cast<std::size_t>(i * a.columns + k)] *
            b.values[static_cast<std::size_t>(k * b.columns + j)];
        ++multiplications;
      }
    }
  }
  return c;
}

Matrix numbers(std::int64_t rows, std::int64_t columns) {
  Matrix m{rows, columns, std::vector<double>(static_cast<std::size_t>(rows * columns))};
  for (std::size_t i = 0; i < m.values.size(); ++i) {
    m.values[i] = static_cast<double>(i * 7 % 5) - 2.0;
  }
  return m;
}

/// Mean and biased variance of a column of numbers.
std::pair<double, double> moments(const std::vector<double>& x) {
  const auto n = static_cast<double>(x.size());
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double squares = 0.0;
  for (const double value : x) {
    squares += (value - mean) * (value - mean);
  }
  return {mean, squares / n};
}

double mean(const std::vector<double>& x) { return moments(x).first; }

}  // namespace

// Three layers of ten units under one loss: as vectors 300 products, as matrices 2100.
TEST(Maths, BackwardFromTheLossCostsVectorsWhereForwardFromTheInputCostsMatrices) {
  const Matrix d_loss = numbers(1, 10);
  const Matrix third = numbers(10, 10), second = numbers(10, 10), first = numbers(10, 10);
  std::int64_t reverse = 0, forward = 0;
  const Matrix backward =
      product(product(product(d_loss, third, reverse), second, reverse), first, reverse);
  const Matrix other =
      product(d_loss, product(third, product(second, first, forward), forward), forward);
  EXPECT_EQ(backward.values, other.values);
  EXPECT_EQ(reverse, 300);
  EXPECT_EQ(forward, 2100);
}

// Losses 1, 2 and 3, 6: means 1.5 and 4.5, mean of all 3. Cut as 1 and 3 the means are 1 and 11/3.
TEST(Maths, AveragingIsExactForEqualShardsAndNotForOthers) {
  EXPECT_EQ(mean({1, 2, 3, 6}), 3.0);
  EXPECT_EQ((mean({1, 2}) + mean({3, 6})) / 2.0, 3.0);
  const double uneven = (mean({1}) + mean({2, 3, 6})) / 2.0;
  EXPECT_NEAR(uneven, 7.0 / 3.0, 1e-15);
  // Where equal size was used: n_r / N = 1/2 for both. The true weights mend it.
  EXPECT_EQ(1.0 / 4.0 * mean({1}) + 3.0 / 4.0 * mean({2, 3, 6}), 3.0);
}

// Rows 1, 3 on one rank and 5, 7 on the other: batch statistics change with the cut.
TEST(Maths, BatchStatisticsDependOnTheShard) {
  EXPECT_EQ(moments({1, 3, 5, 7}), std::pair(4.0, 5.0));
  EXPECT_EQ(moments({1, 3}), std::pair(2.0, 1.0));
  EXPECT_EQ(moments({5, 7}), std::pair(6.0, 1.0));
}

// A row's norm reads that row alone: any cut of the rows has the same bits.
TEST(Maths, LayerAndRmsNormReadOneRowAtATime) {
  run_ranks(1, [](World&, Device& device) {
    const auto stream = device.make_stream("norm");
    for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
      const HostTensor x(DType::kF32, {4, 3}, {1, 3, 4, 5, 7, -2, 0.5, 8, 6, -1, 2, 9});
      const HostTensor weight(DType::kF32, {3}, {1, 2, 3}), bias(DType::kF32, {3}, 0.5);
      const HostTensor whole(DType::kF32, {4, 3}), parts(DType::kF32, {4, 3});
      const HostTensor averages(DType::kF32, {4}), rstd(DType::kF32, {4});
      const auto apply = [&](const Tensor& y, std::int64_t start, std::int64_t length) {
        const bool layer = kind == NormKind::kLayerNorm;
        device.norm_forward(*stream, {.kind = kind,
                                      .x = x->slice(0, start, length),
                                      .weight = *weight,
                                      .bias = layer ? *bias : Tensor(),
                                      .y = y.slice(0, start, length),
                                      .mean = layer ? averages->slice(0, start, length) : Tensor(),
                                      .rstd = rstd->slice(0, start, length)});
      };
      apply(*whole, 0, 4);
      apply(*parts, 0, 1);
      apply(*parts, 1, 3);
      stream->synchronize();
      EXPECT_EQ(values_of(*whole), values_of(*parts));
    }
  });
}

// Gradients (3, 0) and (0, 4): the sum has norm 5 and is clipped to (0.6, 0.8); clipped first, the
// parts have norm 1 each and add up to (1, 1), in another direction.
TEST(Maths, ClippingDoesNotCommuteWithTheSum) {
  EXPECT_NEAR(3.0 * clip_factor(5.0, 1.0), 0.6, 1e-6);
  EXPECT_NEAR(4.0 * clip_factor(5.0, 1.0), 0.8, 1e-6);
  EXPECT_NEAR(3.0 * clip_factor(3.0, 1.0), 1.0, 1e-6);
  EXPECT_NEAR(4.0 * clip_factor(4.0, 1.0), 1.0, 1e-6);
}

// 1 + 2^-24 rounds to 1 in fp32, twice; the small ones added first make 1 + 2^-23.
TEST(Maths, SumsDependOnTheirOrder) {
  const float small = std::ldexp(1.0f, -24);
  EXPECT_EQ((1.0f + small) + small, 1.0f);
  EXPECT_EQ(1.0f + (small + small), 1.0f + std::ldexp(1.0f, -23));
}

// Backward is linear in what it is seeded with: 1/64 at the loss is 1/64 at every gradient, to the
// bit, since it is a power of two.
TEST(Maths, ScalingTheLossScalesEveryGradient) {
  const NetworkOptions options{.language_model = true,
                               .vocab = 10,
                               .context = 3,
                               .hidden = 4,
                               .ffn = 6,
                               .layers = 2,
                               .max_rows = 12};
  const auto gradients = [&](double scale) {
    std::vector<double> all;
    run_ranks(1, [&](World& world, Device& device) {
      TestRank rank(world, device, 1, kFloat);
      NetworkRun network(rank, options, 0.0);
      network.step({make_rows(options, 20, 12, 3)}, scale);
      for (const Parameter& parameter : network.store().parameters()) {
        const std::vector<double> own = values_of(parameter.main_grad);
        all.insert(all.end(), own.begin(), own.end());
      }
    });
    return all;
  };
  std::vector<double> whole = gradients(1.0);
  for (double& value : whole) {
    value /= 64.0;
  }
  EXPECT_EQ(gradients(1.0 / 64.0), whole);
}

// The backward of an all-gather of rows whose gathered value each rank uses for a part of the
// computation: rank r gets the sum over ranks of their gradients of its own rows. Ranks 0 and 1
// with gradients (1, 2) and (10, 20) of the gathered rows hold 11 and 22.
TEST(Maths, BackwardOfAnAllGatherIsAReduceScatter) {
  run_ranks(2, [](World& world, Device& device) {
    TestRank rank(world, device, 2, kFloat);
    const double factor = world.rank() == 0 ? 1.0 : 10.0;
    const HostTensor d_y(DType::kF32, {2, 1}, {1 * factor, 2 * factor});
    const HostTensor d_x(DType::kF32, {1, 1});
    GatherFromSequenceParallel(*rank.context.tensor_parallel)
        .backward(*d_y, *d_x, {.after = rank.context.compute})
        .work.wait_host();
    EXPECT_EQ(get(*d_x, 0), world.rank() == 0 ? 11.0 : 22.0);
  });
}

}  // namespace tandem::test
