// Matrix products, on every device and in each of its precisions.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/core/kernel_support.h"

namespace tandem::testing {
namespace {

class GemmTest : public KernelTest {
 protected:
  /// A matrix inside a wider one: its rows are strided.
  Twin strided(std::int64_t rows, std::int64_t columns, DType type) {
    return random({rows, columns + 3}, type).slice(1, 2, columns);
  }

  /// sum over k of |a||b|, + |c| + |bias|: what rounding errors are measured against.
  std::vector<double> magnitude(const Gemm& args) {
    const std::int64_t m = args.c.dim(0), n = args.c.dim(1);
    const Twin a = absolute(args.a), b = absolute(args.b);
    const Twin c =
        args.write == Write::kAccumulate
            ? absolute(args.c)
            : of(std::vector<double>(static_cast<std::size_t>(m * n)), {m, n}, DType::kF64);
    const auto oracle = make_reference_device(1);
    const auto stream = oracle->make_stream("magnitude");
    oracle->gemm(*stream, {.a = a.oracle,
                           .b = b.oracle,
                           .c = c.oracle,
                           .transpose_a = args.transpose_a,
                           .transpose_b = args.transpose_b,
                           .write = Write::kAccumulate});
    std::vector<double> sums = oracle_values(c);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += 4.0;  // the bias, generously
    }
    return sums;
  }

 private:
  Twin absolute(const Tensor& oracle) {
    std::vector<double> all = oracle_values({.device = {}, .oracle = oracle});
    std::ranges::transform(all, all.begin(), [](double v) { return std::abs(v); });
    return of(all, oracle.shape, DType::kF64);
  }
};

TEST_P(GemmTest, MatchesTheReferenceInEveryShapeAndForm) {
  const std::vector<Shape> shapes = {{1, 1, 1},    {3, 17, 33},   {17, 1, 255}, {1, 33, 17},
                                     {33, 255, 3}, {255, 33, 17}, {64, 64, 64}, {65, 129, 70}};
  for (const Shape& shape : shapes) {
    const std::int64_t m = shape[0], n = shape[1], k = shape[2];
    for (int form = 0; form < 32; ++form) {
      const bool ta = form & 1, tb = form & 2, to_main = form & 4, add = form & 8;
      const bool with_bias = (form & 16) != 0;
      if (with_bias && add) {
        continue;
      }
      const Twin a = ta ? strided(k, m, storage()) : strided(m, k, storage());
      const Twin b = tb ? strided(n, k, storage()) : strided(k, n, storage());
      const DType type = to_main ? main() : storage();
      const Twin c = (add ? random({m, n + 5}, type) : poison({m, n + 5}, type)).slice(1, 1, n);
      const Twin bias = with_bias ? random({n}, storage()) : Twin{};
      const auto args = [&](const auto& at) {
        return Gemm{.a = at(a),
                    .b = at(b),
                    .c = at(c),
                    .transpose_a = ta,
                    .transpose_b = tb,
                    .write = add ? Write::kAccumulate : Write::kOverwrite,
                    .bias = at(bias)};
      };
      const auto scale = magnitude(args([](const Twin& t) { return t.oracle; }));
      run([&](Device& d, Stream& s, auto at) { d.gemm(s, args(at)); });
      expect_close(c, 4.0 + static_cast<double>(k) / 4.0, scale,
                   shape.to_string() + " form " + std::to_string(form));
    }
  }
}

TEST_P(GemmTest, LeavesTheGapsBetweenStridedRowsAlone) {
  const Twin a = random({17, 33}, storage()), b = random({33, 5}, storage());
  const Twin wide = of(std::vector<double>(17 * 9, 7.0), {17, 9}, storage());
  const Twin c = wide.slice(1, 2, 5);
  run([&](Device& d, Stream& s, auto at) { d.gemm(s, {.a = at(a), .b = at(b), .c = at(c)}); });
  const auto all = values(wide);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % 9 < 2 || i % 9 >= 7) {
      EXPECT_EQ(all[i], 7.0);
    }
  }
}

TEST_P(GemmTest, SizesOfZero) {
  const Twin bias = random({5}, storage());
  for (const bool with_bias : {false, true}) {
    const Twin c = poison({3, 5}, storage());
    const Twin a = poison({3, 0}, storage()), b = poison({0, 5}, storage());
    run([&](Device& d, Stream& s, auto at) {
      d.gemm(s, {.a = at(a), .b = at(b), .c = at(c), .bias = with_bias ? at(bias) : Tensor{}});
    });
    const auto row = with_bias ? values(bias) : std::vector<double>(5, 0.0);
    std::vector<double> want;
    for (int r = 0; r < 3; ++r) {
      want.insert(want.end(), row.begin(), row.end());
    }
    expect_values(c, want);
  }
  const Twin kept = of({1, 2, 3, 4, 5, 6}, {2, 3}, main());
  const Twin a = poison({0, 2}, storage()), b = poison({0, 3}, storage());
  run([&](Device& d, Stream& s, auto at) {
    d.gemm(
        s,
        {.a = at(a), .b = at(b), .c = at(kept), .transpose_a = true, .write = Write::kAccumulate});
  });
  expect_values(kept, {1, 2, 3, 4, 5, 6});

  const Twin no_rows = poison({0, 4}, storage()), weight = random({4, 4}, storage());
  run([&](Device& d, Stream& s, auto at) {
    d.gemm(s, {.a = at(no_rows), .b = at(weight), .c = at(no_rows)});
    d.gemm(
        s,
        {.a = at(weight), .b = at(no_rows), .c = at(no_rows).reshape({4, 0}), .transpose_b = true});
  });
}

TEST_P(GemmTest, OnesOverALongContractionAreCountedExactly) {  // B74
  for (const std::int64_t k : {1024, 1000}) {
    const Twin a =
        of(std::vector<double>(static_cast<std::size_t>(64 * k), 1.0), {64, k}, storage());
    const Twin b =
        of(std::vector<double>(static_cast<std::size_t>(k * 64), 1.0), {k, 64}, storage());
    const Twin c = poison({64, 64}, storage());
    run([&](Device& d, Stream& s, auto at) { d.gemm(s, {.a = at(a), .b = at(b), .c = at(c)}); });
    expect_values(c, std::vector<double>(64 * 64, static_cast<double>(k)));
  }
}

TEST_P(GemmTest, OnesOf1024Squared) {  // B74
  const std::vector<double> ones(1024 * 1024, 1.0);
  if (GetParam().precision.storage == DType::kF64) {
    return;  // the reference's plain loops take seconds
  }
  const Twin a = of(ones, {1024, 1024}, storage()), c = poison({1024, 1024}, storage());
  device().gemm(stream(), {.a = a.device, .b = a.device, .c = c.device});
  stream().synchronize();
  const auto got = values(c);
  EXPECT_TRUE(std::ranges::all_of(got, [](double v) { return v == 1024.0; }));
}

TEST_P(GemmTest, ThousandMicroGradientsOfOneMakeAThousand) {  // B71
  const Twin x = of({1.0}, {1, 1}, storage()), d_y = of({1.0}, {1, 1}, storage());
  const Twin main_grad = poison({1, 1}, main());
  run([&](Device& d, Stream& s, auto at) {
    for (int i = 0; i < 1000; ++i) {
      d.gemm(s, {.a = at(d_y),
                 .b = at(x),
                 .c = at(main_grad),
                 .transpose_a = true,
                 .write = i == 0 ? Write::kOverwrite : Write::kAccumulate});
    }
  });
  expect_values(main_grad, {1000.0});
}

TEST_P(GemmTest, BitsOfOneThreadDoNotDependOnHowRowsAndColumnsAreSplit) {
  if (GetParam().name.find("threads") != std::string::npos || GetParam().name.starts_with("cuda")) {
    return;  // oneDNN may split the contraction over threads, cuBLASLt as each shape likes
  }
  const std::int64_t m = 96, n = 160, k = 200;
  const Twin a = random({m, k}, storage()), b = random({n, k}, storage());
  const Twin whole = poison({m, n}, storage()), parts = poison({m, n}, storage());
  run([&](Device& d, Stream& s, auto at) {
    d.gemm(s, {.a = at(a), .b = at(b), .c = at(whole), .transpose_b = true});
    for (std::int64_t i = 0; i < m; i += m / 4) {
      for (std::int64_t j = 0; j < n; j += n / 2) {
        d.gemm(s, {.a = at(a).slice(0, i, m / 4),
                   .b = at(b).slice(0, j, n / 2),
                   .c = at(parts).slice(0, i, m / 4).slice(1, j, n / 2),
                   .transpose_b = true});
      }
    }
  });
  EXPECT_EQ(values(whole), values(parts));
}

TEST_P(GemmTest, LargerThanOneBlockOfTheConvertedProduct) {
  const std::int64_t m = 600, n = 1100, k = 40;
  const Twin a = random({k, m}, storage()), b = random({n, k}, storage());
  const Twin bias = random({n}, storage()), c = poison({m, n}, storage());
  const Twin sum = random({m, n}, main());
  run([&](Device& d, Stream& s, auto at) {
    d.gemm(s, {.a = at(a),
               .b = at(b),
               .c = at(c),
               .transpose_a = true,
               .transpose_b = true,
               .bias = at(bias)});
    d.gemm(s, {.a = at(a),
               .b = at(b),
               .c = at(sum),
               .transpose_a = true,
               .transpose_b = true,
               .write = Write::kAccumulate});
  });
  expect_close(c, 10.0, {60.0});
  expect_close(sum, 10.0, {60.0});
}

class FusedGemmTest : public GemmTest {
 protected:
  /// Two steps may round twice, or in the middle not at all: as many more units of the storage
  /// type.
  void expect_fused(const Twin& twin, double size, const std::string& what) {
    const double units = roundoff(storage()) / roundoff(sum());
    expect_close(twin, 64.0 + 4.0 * units, {size}, what);
  }
};

const std::vector<Activation> kActivations = {Activation::kGelu, Activation::kSwiglu,
                                              Activation::kRelu};

TEST_P(FusedGemmTest, GemmAndActivation) {
  for (const Activation kind : kActivations) {
    const std::int64_t parts = kind == Activation::kSwiglu ? 2 : 1;
    for (const std::int64_t n : {std::int64_t{3}, std::int64_t{24}, std::int64_t{64}}) {
      for (const std::int64_t k : {std::int64_t{0}, std::int64_t{40}}) {
        for (const bool with_bias : {false, true}) {
          const Twin x = random({9, k}, storage()), w = random({parts * n, k}, storage(), 0.2);
          const Twin bias = with_bias ? random({parts * n}, storage()) : Twin{};
          const Twin pre = poison({9, parts * n}, storage()), out = poison({9, n}, storage());
          run([&](Device& d, Stream& s, auto at) {
            if (!d.gemm_activation(s, {.gemm = {.a = at(x),
                                                .b = at(w),
                                                .c = at(pre),
                                                .transpose_b = true,
                                                .bias = at(bias)},
                                       .kind = kind,
                                       .out = at(out)})) {
              d.activation_forward(s, {.kind = kind, .pre = at(pre), .out = at(out)});
            }
          });
          expect_close(pre, 16.0, {20.0}, "pre");
          expect_fused(out, 4.0 * static_cast<double>(parts), "out");
        }
      }
    }
  }
}

TEST_P(FusedGemmTest, GemmAndActivationBackward) {
  for (const Activation kind : kActivations) {
    const std::int64_t parts = kind == Activation::kSwiglu ? 2 : 1;
    for (const std::int64_t n : {std::int64_t{3}, std::int64_t{64}}) {
      for (const bool over_pre : {false, true}) {
        const Twin d_y = random({9, 40}, storage()), w = random({40, n}, storage(), 0.2);
        const Twin pre = random({9, parts * n}, storage()), d_out = poison({9, n}, storage());
        // The layer's two ways: over the scratch, or (swiglu, which is wider) over pre.
        const Twin d_pre = over_pre || kind == Activation::kSwiglu ? pre : d_out;
        run([&](Device& d, Stream& s, auto at) {
          if (!d.gemm_activation_backward(s, {.gemm = {.a = at(d_y), .b = at(w), .c = at(d_out)},
                                              .kind = kind,
                                              .pre = at(pre),
                                              .d_pre = at(d_pre)})) {
            d.activation_backward(
                s, {.kind = kind, .pre = at(pre), .d_out = at(d_out), .d_pre = at(d_pre)});
          }
        });
        expect_fused(d_pre, 8.0, "d_pre");
      }
    }
  }
}

TEST_P(FusedGemmTest, WeightAndBiasGradients) {
  for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{40}}) {
    for (const Write write : {Write::kOverwrite, Write::kAccumulate}) {
      const bool add = write == Write::kAccumulate;
      const Twin d_y = random({rows, 24}, storage()), x = random({rows, 16}, storage());
      const Twin d_weight = add ? random({24, 16}, main()) : poison({24, 16}, main());
      // Not on 16 bytes: parameters lie side by side.
      const Twin wide = add ? random({25}, main()) : poison({25}, main());
      const Twin d_bias = wide.slice(0, 1, 24);
      run([&](Device& d, Stream& s, auto at) {
        d.gemm_bias_gradient(s, {.gemm = {.a = at(d_y),
                                          .b = at(x),
                                          .c = at(d_weight),
                                          .transpose_a = true,
                                          .write = write},
                                 .d_bias = at(d_bias)});
      });
      expect_close(d_weight, 16.0, {40.0}, "d_weight");
      expect_close(d_bias, 16.0, {40.0}, "d_bias");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, FusedGemmTest, ::testing::ValuesIn(device_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Devices, GemmTest, ::testing::ValuesIn(device_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Fallbacks, FusedGemmTest, ::testing::ValuesIn(fallback_cases()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Fallbacks, GemmTest, ::testing::ValuesIn(fallback_cases()), case_name);

}  // namespace
}  // namespace tandem::testing
