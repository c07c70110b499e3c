// The losses: cross-entropy in its three pieces and the squared error, on every device and in each
// of its precisions, against the reference device fed the same stored values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/core/kernel_support.h"

namespace tandem::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const std::vector<std::int64_t> kSizes = {1, 3, 17, 33, 255, 262, 2056};

using LossKernels = KernelTest;

TEST_P(LossKernels, CrossEntropyPieces) {
  for (const std::int64_t valid : kSizes) {
    const std::int64_t rows = 9, columns = valid + 2, start = 4;
    const Twin logits = random({rows, columns}, storage(), 4.0);
    const Twin targets = of({-1, 0, 4, static_cast<double>(start + valid - 1), 3,
                             static_cast<double>(start + valid), 4, -1, 4},
                            {rows}, DType::kI32);
    const Twin row_max = poison({rows}, sum()), sums = poison({rows, 2}, sum());
    const Twin loss = of({0.5}, {1}, DType::kF64);
    const Twin d_logits = poison({rows, columns}, storage());
    run([&](Device& d, Stream& s, auto at) {
      d.cross_entropy_max(s,
                          {.logits = at(logits), .row_max = at(row_max), .valid_columns = valid});
      d.cross_entropy_sums(s, {.logits = at(logits),
                               .targets = at(targets),
                               .row_max = at(row_max),
                               .sums = at(sums),
                               .vocab_start = start,
                               .valid_columns = valid});
    });
    expect_close(row_max, 0.0, {0.0}, "row_max");
    expect_close(sums, 16.0, {static_cast<double>(valid)}, "sums");
    const auto backward = [&](const Twin& gradient) {
      run([&](Device& d, Stream& s, auto at) {
        d.cross_entropy_backward(s, {.logits = at(logits),
                                     .targets = at(targets),
                                     .row_max = at(row_max),
                                     .sums = at(sums),
                                     .d_logits = at(gradient),
                                     .loss_sum = at(loss),
                                     .vocab_start = start,
                                     .valid_columns = valid,
                                     .scale = 8.0});
      });
    };
    backward(d_logits);
    EXPECT_NEAR(values(loss)[0], oracle_values(loss)[0], 1e3 * roundoff(sum()));
    expect_close(d_logits, 32.0, {8.0}, "d_logits");
    backward({});  // loss only
    EXPECT_NEAR(values(loss)[0], oracle_values(loss)[0], 2e3 * roundoff(sum()));
    backward(logits);  // in place
    EXPECT_EQ(values(logits), values(d_logits));
  }
}

TEST_P(LossKernels, CrossEntropyOfAShardWithoutVocabulary) {
  const Twin logits = random({3, 2}, storage()), targets = of({0, 1, 2}, {3}, DType::kI32);
  const Twin row_max = poison({3}, sum()), sums = poison({3, 2}, sum());
  run([&](Device& d, Stream& s, auto at) {
    d.cross_entropy_max(s, {.logits = at(logits), .row_max = at(row_max), .valid_columns = 0});
  });
  EXPECT_EQ(values(row_max), doubles(3, -kInfinity));
  const Twin reduced = of({1, 1, 1}, {3}, sum());
  run([&](Device& d, Stream& s, auto at) {
    d.cross_entropy_sums(s, {.logits = at(logits),
                             .targets = at(targets),
                             .row_max = at(reduced),
                             .sums = at(sums),
                             .vocab_start = 8,
                             .valid_columns = 0});
  });
  EXPECT_EQ(values(sums), doubles(6, 0.0));
}

TEST_P(LossKernels, MeanSquaredError) {
  for (const std::int64_t n : kSizes) {
    const Twin y = random({11, n}, storage()), target = random({11, n}, storage());
    const Twin d_y = poison({11, n}, storage()), loss = of({2.0}, {1}, DType::kF64);
    run([&](Device& d, Stream& s, auto at) {
      d.mean_squared_error(
          s,
          {.y = at(y), .target = at(target), .d_y = at(d_y), .loss_sum = at(loss), .scale = 3.0});
      d.mean_squared_error(s, {.y = at(y), .target = at(target), .d_y = {}, .loss_sum = at(loss)});
      d.mean_squared_error(
          s, {.y = at(y), .target = at(target), .d_y = at(y), .loss_sum = at(loss), .scale = 3.0});
    });
    expect_close(d_y, 4.0, {4.0});
    EXPECT_NEAR(values(loss)[0], oracle_values(loss)[0], 1e3 * roundoff(sum()));
    EXPECT_EQ(values(y), values(d_y));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LossKernels, ::testing::ValuesIn(device_cases()), case_name);

}  // namespace
}  // namespace tandem::testing
