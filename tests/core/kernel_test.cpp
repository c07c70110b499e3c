// Activations, norms, embedding and dropout, on every device and in each of its precisions, against
// the reference device fed the same stored values. Outputs that a kernel must overwrite start as
// NaN.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/philox.h"
#include "tests/core/kernel_support.h"

namespace tandem::testing {
namespace {

// Below, at and above a vector; 262 with two columns of padding and 2056 are whole packs of 16
// bytes.
const std::vector<std::int64_t> kSizes = {1, 3, 17, 33, 255, 262, 2056};
const std::vector<Activation> kActivations = {Activation::kGelu, Activation::kSwiglu,
                                              Activation::kRelu};
const std::vector<Write> kWrites = {Write::kOverwrite, Write::kAccumulate};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Kernels = KernelTest;

TEST_P(Kernels, Activations) {
  for (const Activation kind : kActivations) {
    const std::int64_t parts = kind == Activation::kSwiglu ? 2 : 1;
    for (const std::int64_t n : kSizes) {
      const Twin pre = random({5, parts * n}, storage(), 3.0), d_out = random({5, n}, storage());
      const Twin out = poison({5, n}, storage()), d_pre = poison({5, parts * n}, storage());
      const Twin again = of(values(pre), {5, parts * n}, storage());
      run([&](Device& d, Stream& s, auto at) {
        d.activation_forward(s, {.kind = kind, .pre = at(pre), .out = at(out)});
        d.activation_backward(
            s, {.kind = kind, .pre = at(pre), .d_out = at(d_out), .d_pre = at(d_pre)});
      });
      expect_close(out, 16.0, {4.0}, "forward");
      expect_close(d_pre, 64.0, {1.0}, "backward");
      run([&](Device& d, Stream& s, auto at) {  // in place
        d.activation_backward(s,
                              {.kind = kind, .pre = at(pre), .d_out = at(d_out), .d_pre = at(pre)});
      });
      EXPECT_EQ(values(pre), values(d_pre));
      if (kind != Activation::kSwiglu) {
        run([&](Device& d, Stream& s, auto at) {  // over d_out
          d.activation_backward(
              s, {.kind = kind, .pre = at(again), .d_out = at(d_out), .d_pre = at(d_out)});
        });
        EXPECT_EQ(values(d_out), values(d_pre));
      }
    }
  }
}

TEST_P(Kernels, ActivationsFarFromZeroAndNotFinite) {
  const std::vector<double> x = {0.0, -0.0, 9.0, -9.0, 80.0, -80.0, 1e4, -1e4, kNan, 1e-6};
  const auto n = static_cast<std::int64_t>(x.size());
  for (const Activation kind : {Activation::kGelu, Activation::kRelu}) {
    const Twin pre = of(x, {1, n}, storage()), ones = of(doubles(n, 1.0), {1, n}, storage());
    const Twin out = poison({1, n}, storage()), d_pre = poison({1, n}, storage());
    run([&](Device& d, Stream& s, auto at) {
      d.activation_forward(s, {.kind = kind, .pre = at(pre), .out = at(out)});
      d.activation_backward(s,
                            {.kind = kind, .pre = at(pre), .d_out = at(ones), .d_pre = at(d_pre)});
    });
    expect_close(out, 4.0, {1.0});
    EXPECT_TRUE(std::isnan(values(out)[8]));
    const auto slopes = values(d_pre);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!std::isnan(x[i])) {
        EXPECT_NEAR(slopes[i], oracle_values(d_pre)[i], 0.01) << x[i];
      }
    }
  }
}

TEST_P(Kernels, AnElementsBitsDoNotDependOnItsLane) {
  const std::int64_t n = 67;
  const Twin pre = random({1, n}, storage(), 3.0), whole = poison({1, n}, storage());
  const Twin single = poison({1, n}, storage());
  run([&](Device& d, Stream& s, auto at) {
    d.activation_forward(s, {.pre = at(pre), .out = at(whole)});
    for (std::int64_t i = 0; i < n; ++i) {
      d.activation_forward(s, {.pre = at(pre).slice(1, i, 1).flat().reshape({1, 1}),
                               .out = at(single).slice(1, i, 1).flat().reshape({1, 1})});
    }
  });
  EXPECT_EQ(values(whole), values(single));
}

TEST_P(Kernels, Norms) {
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    const bool layer = kind == NormKind::kLayerNorm;
    for (const std::int64_t n : kSizes) {
      const std::int64_t rows = 70;
      const Twin x = random({rows, n}, storage(), 2.0), weight = random({n}, storage());
      const Twin bias = layer ? random({n}, storage()) : Twin{};
      const Twin y = poison({rows, n}, storage()), rstd = poison({rows}, sum());
      const Twin mean = layer ? poison({rows}, sum()) : Twin{};
      run([&](Device& d, Stream& s, auto at) {
        d.norm_forward(s, {.kind = kind,
                           .eps = 0.1,
                           .x = at(x),
                           .weight = at(weight),
                           .bias = at(bias),
                           .y = at(y),
                           .mean = at(mean),
                           .rstd = at(rstd)});
      });
      expect_close(y, 64.0, {4.0}, "y");
      expect_close(rstd, 64.0, {1.0}, "rstd");

      const Twin d_y = random({rows, n}, storage()), residual = random({rows, n}, storage());
      for (const Write write : kWrites) {
        const bool add = write == Write::kAccumulate;
        const Twin d_x = poison({rows, n}, storage());
        const Twin d_weight = add ? random({n}, main()) : poison({n}, main());
        const Twin d_bias = !layer ? Twin{} : add ? random({n}, main()) : poison({n}, main());
        run([&](Device& d, Stream& s, auto at) {
          d.norm_backward(s, {.kind = kind,
                              .d_y = at(d_y),
                              .x = at(x),
                              .weight = at(weight),
                              .mean = at(mean),
                              .rstd = at(rstd),
                              .residual = at(residual),
                              .d_x = at(d_x),
                              .d_weight = at(d_weight),
                              .d_bias = at(d_bias),
                              .write = write});
        });
        expect_close(d_x, 128.0, {8.0}, "d_x");
        expect_close(d_weight, 32.0, {70.0}, "d_weight");
        if (layer) {
          expect_close(d_bias, 32.0, {70.0}, "d_bias");
        }
        if (add) {  // d_x in the residual's memory
          run([&](Device& d, Stream& s, auto at) {
            d.norm_backward(s, {.kind = kind,
                                .d_y = at(d_y),
                                .x = at(x),
                                .weight = at(weight),
                                .mean = at(mean),
                                .rstd = at(rstd),
                                .residual = at(residual),
                                .d_x = at(residual),
                                .d_weight = at(d_weight),
                                .d_bias = at(d_bias)});
          });
          EXPECT_EQ(values(residual), values(d_x));
        }
      }
    }
  }
}

TEST_P(Kernels, EmbeddingGathersSumsAndScatters) {
  for (const std::int64_t hidden : kSizes) {
    const std::int64_t rows = 40, context = 3, vocab = 7, start = 5;
    std::vector<double> ids;
    for (std::int64_t i = 0; i < rows * context; ++i) {
      ids.push_back(static_cast<double>(i * i % 17 - 1));  // -1, other shards' and our own
    }
    const Twin id = of(ids, {rows, context}, DType::kI32);
    const Twin table = random({context, vocab, hidden}, storage());
    const Twin y = poison({rows, hidden}, storage()), d_y = random({rows, hidden}, storage());
    const Twin workspace = poison({context, rows + vocab + 1}, DType::kI32);
    run([&](Device& d, Stream& s, auto at) {
      d.embedding_forward(s, {.ids = at(id), .table = at(table), .y = at(y), .vocab_start = start});
    });
    expect_close(y, 4.0, {6.0}, "y");
    for (const Write write : kWrites) {
      const Twin d_table = write == Write::kAccumulate ? random({context, vocab, hidden}, main())
                                                       : poison({context, vocab, hidden}, main());
      run([&](Device& d, Stream& s, auto at) {
        d.embedding_backward(s, {.ids = at(id),
                                 .d_y = at(d_y),
                                 .d_table = at(d_table),
                                 .workspace = at(workspace),
                                 .vocab_start = start,
                                 .write = write});
      });
      expect_close(d_table, 16.0, {20.0}, "d_table");
    }
  }
}

TEST_P(Kernels, EmbeddingSortsMoreRowsAndIdsThanABlockHasThreads) {
  const std::int64_t rows = 700, context = 2, vocab = 600, hidden = 8;
  std::vector<double> ids;
  for (std::int64_t i = 0; i < rows * context; ++i) {
    ids.push_back(static_cast<double>(i % 3 == 0 ? 11 : i * i % 607));  // one id is everywhere
  }
  const Twin id = of(ids, {rows, context}, DType::kI32);
  const Twin d_y = random({rows, hidden}, storage());
  const Twin d_table = poison({context, vocab, hidden}, main());
  const Twin workspace = poison({context, rows + vocab + 1}, DType::kI32);
  run([&](Device& d, Stream& s, auto at) {
    d.embedding_backward(
        s, {.ids = at(id), .d_y = at(d_y), .d_table = at(d_table), .workspace = at(workspace)});
  });
  expect_close(d_table, 300.0, {240.0});
}

TEST_P(Kernels, BiasDropoutAdd) {
  for (const double p : {0.0, 0.3}) {
    for (const std::int64_t n : {1, 33, 515, 520}) {
      const Twin branch = random({6, n}, storage()), residual = random({6, n}, storage());
      const Twin keys = of({3, 1e12, 0, 7, 8, 9}, {6}, DType::kI64);
      const Dropout dropout{.p = p, .seed = 99, .update = 3, .layer = 2};
      for (const Twin& bias : {Twin{}, random({n}, storage())}) {
        const Twin out = poison({6, n}, storage()), in_place = poison({6, n}, storage());
        run([&](Device& d, Stream& s, auto at) {
          d.copy(s, at(residual), at(in_place));
          d.bias_dropout_add(s, {.branch = at(branch),
                                 .bias = at(bias),
                                 .residual = at(residual),
                                 .out = at(out),
                                 .row_keys = at(keys),
                                 .dropout = dropout});
          d.bias_dropout_add(s, {.branch = at(branch),
                                 .bias = at(bias),
                                 .residual = at(in_place),
                                 .out = at(in_place),
                                 .row_keys = at(keys),
                                 .dropout = dropout});
        });
        expect_close(out, 8.0, {5.0});
        EXPECT_EQ(values(out), values(in_place));
      }
      const Twin d_in = poison({6, n}, storage());
      run([&](Device& d, Stream& s, auto at) {
        d.dropout_backward(
            s, {.d_out = at(branch), .d_in = at(d_in), .row_keys = at(keys), .dropout = dropout});
      });
      expect_close(d_in, 4.0, {5.0});
    }
  }
}

TEST_P(Kernels, DropoutDependsOnTheSeedAndTheRowKeyAlone) {  // B51
  const std::int64_t rows = 1000, n = 1000;
  std::vector<double> row_keys;
  for (std::int64_t r = 0; r < rows; ++r) {
    row_keys.push_back(static_cast<double>(r));
  }
  const Twin ones = of(doubles(rows * n, 1.0), {rows, n}, storage());
  const Twin zeros = of(doubles(rows * n, 0.0), {rows, n}, storage());
  const Twin first = poison({rows, n}, storage()), second = poison({rows, n}, storage());
  const Twin keys = of(row_keys, {rows}, DType::kI64);
  const Dropout dropout{.p = 0.1, .seed = 5, .update = 1, .layer = 0};
  for (const Twin& out : {first, second}) {
    run([&](Device& d, Stream& s, auto at) {
      d.bias_dropout_add(s, {.branch = at(ones),
                             .bias = {},
                             .residual = at(zeros),
                             .out = at(out),
                             .row_keys = at(keys),
                             .dropout = dropout});
    });
  }
  const auto got = values(first);
  EXPECT_EQ(got, values(second));
  double total = 0.0;
  for (const double v : got) {
    EXPECT_TRUE(v == 0.0 || std::abs(v - 1.0 / 0.9) <= roundoff(storage()) * 1.2) << v;
    total += v;
  }
  EXPECT_NEAR(total / static_cast<double>(rows * n), 1.0, storage() == DType::kBF16 ? 5e-3 : 3e-3);
  // The second half of the rows alone, from its keys: the same mask.
  run([&](Device& d, Stream& s, auto at) {
    d.bias_dropout_add(s, {.branch = at(ones).slice(0, 500, 500),
                           .bias = {},
                           .residual = at(zeros).slice(0, 500, 500),
                           .out = at(second).slice(0, 0, 500),
                           .row_keys = at(keys).slice(0, 500, 500),
                           .dropout = dropout});
  });
  const auto half = values(second.slice(0, 0, 500));
  EXPECT_TRUE(std::equal(half.begin(), half.end(), got.begin() + 500 * n));
  // p = 0: the identity, to the bit.
  const Twin x = random({3, n}, storage());
  run([&](Device& d, Stream& s, auto at) {
    d.bias_dropout_add(s, {.branch = at(x),
                           .bias = {},
                           .residual = at(zeros).first(3),
                           .out = at(first).first(3),
                           .row_keys = {},
                           .dropout = {}});
  });
  EXPECT_EQ(values(first.slice(0, 0, 3)), values(x));
}

TEST_P(Kernels, NoRowsIsNoWork) {
  const Twin x = poison({0, 8}, storage()), rows = poison({0}, sum());
  const Twin w = random({8}, storage()), loss = of({1.0}, {1}, DType::kF64);
  const Twin d_weight = poison({8}, main()), d_bias = poison({8}, main());
  const Twin targets = poison({0}, DType::kI32), sums = poison({0, 2}, sum());
  const Twin ids = poison({0, 2}, DType::kI32), table = random({2, 3, 8}, storage());
  const Twin d_table = poison({2, 3, 8}, main()), workspace = poison({2, 4}, DType::kI32);
  run([&](Device& d, Stream& s, auto at) {
    d.activation_forward(s, {.pre = at(x), .out = at(x)});
    d.norm_forward(s, {.x = at(x),
                       .weight = at(w),
                       .bias = at(w),
                       .y = at(x),
                       .mean = at(rows),
                       .rstd = at(rows)});
    d.norm_backward(s, {.d_y = at(x),
                        .x = at(x),
                        .weight = at(w),
                        .mean = at(rows),
                        .rstd = at(rows),
                        .residual = {},
                        .d_x = at(x),
                        .d_weight = at(d_weight),
                        .d_bias = at(d_bias)});
    d.bias_dropout_add(s, {.branch = at(x),
                           .bias = at(w),
                           .residual = at(x),
                           .out = at(x),
                           .row_keys = {},
                           .dropout = {}});
    d.cross_entropy_max(s, {.logits = at(x), .row_max = at(rows), .valid_columns = 8});
    d.cross_entropy_sums(s, {.logits = at(x),
                             .targets = at(targets),
                             .row_max = at(rows),
                             .sums = at(sums),
                             .valid_columns = 8});
    d.cross_entropy_backward(s, {.logits = at(x),
                                 .targets = at(targets),
                                 .row_max = at(rows),
                                 .sums = at(sums),
                                 .d_logits = at(x),
                                 .loss_sum = at(loss),
                                 .valid_columns = 8});
    d.mean_squared_error(s, {.y = at(x), .target = at(x), .d_y = at(x), .loss_sum = at(loss)});
    d.embedding_forward(s, {.ids = at(ids), .table = at(table), .y = at(x)});
    d.embedding_backward(
        s, {.ids = at(ids), .d_y = at(x), .d_table = at(d_table), .workspace = at(workspace)});
  });
  EXPECT_EQ(values(loss)[0], 1.0);
  EXPECT_EQ(values(d_weight), doubles(8, 0.0));
  EXPECT_EQ(values(d_bias), doubles(8, 0.0));
  EXPECT_EQ(values(d_table), doubles(48, 0.0));
}

INSTANTIATE_TEST_SUITE_P(Devices, Kernels, ::testing::ValuesIn(device_cases()), case_name);

}  // namespace
}  // namespace tandem::testing
