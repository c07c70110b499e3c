// The kernels of flat buffers and whole tensors (sums, updates, casts, copies), on every device and
// in each of its precisions, against the reference device fed the same stored values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/core/kernel_support.h"

namespace tandem::testing {
namespace {

const std::vector<Write> kWrites = {Write::kOverwrite, Write::kAccumulate};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using FlatKernels = KernelTest;

TEST_P(FlatKernels, ColumnSumAndSumOfSquares) {
  for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{7}, std::int64_t{1029}}) {
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{33}, std::int64_t{600}}) {
      const Twin x = random({rows, n}, storage());
      for (const Write write : kWrites) {
        const bool add = write == Write::kAccumulate;
        const Twin out = add ? random({n}, main()) : poison({n}, main());
        const Twin squares = of({add ? 3.0 : kNan}, {1}, DType::kF64);
        run([&](Device& d, Stream& s, auto at) {
          d.column_sum(s, {.x = at(x), .out = at(out), .write = write});
          d.sum_of_squares(s, {.x = at(x), .out = at(squares), .write = write});
        });
        expect_close(out, 16.0, {static_cast<double>(rows) + 1.0}, "column_sum");
        EXPECT_NEAR(values(squares)[0], oracle_values(squares)[0],
                    1e-12 * oracle_values(squares)[0]);
      }
    }
  }
}

TEST_P(FlatKernels, SumOfSquaresOfUnalignedPieces) {
  const Twin x = random({40003}, storage()), squares = poison({1}, DType::kF64);
  for (const std::int64_t start : {1, 2, 3}) {
    run([&](Device& d, Stream& s, auto at) {
      d.sum_of_squares(s, {.x = at(x).slice(0, start, 40000), .out = at(squares)});
    });
    EXPECT_NEAR(values(squares)[0], oracle_values(squares)[0], 1e-8);
  }
}

TEST_P(FlatKernels, AdamWAndSgd) {
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{3}, std::int64_t{255}}) {
    const Twin grad = random({n}, main()), master = random({n}, main()), m = random({n}, main());
    const Twin v = of(doubles(n, 0.25), {n}, main()), buffer = poison({n}, main());
    const Twin weight = poison({n}, storage());
    run([&](Device& d, Stream& s, auto at) {
      d.adamw(s, {.master = at(master),
                  .m = at(m),
                  .v = at(v),
                  .grad = at(grad),
                  .weight = at(weight),
                  .lr = 0.1,
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .weight_decay = 0.1,
                  .grad_scale = 0.5,
                  .update = 3});
    });
    for (const Twin& t : {master, m, v, weight}) {
      expect_close(t, 16.0, {2.0}, "adamw");
    }
    for (const std::int64_t update : {1, 2}) {
      run([&](Device& d, Stream& s, auto at) {
        d.sgd(s, {.master = at(master),
                  .buffer = at(buffer),
                  .grad = at(grad),
                  .weight = at(weight),
                  .lr = 0.1,
                  .momentum = 0.9,
                  .weight_decay = 0.1,
                  .grad_scale = 0.5,
                  .update = update});
      });
    }
    for (const Twin& t : {master, buffer, weight}) {
      expect_close(t, 24.0, {3.0}, "sgd");
    }
  }
}

TEST_P(FlatKernels, SmallUpdatesAreKeptInTheMaster) {  // B75
  const Twin master = of({1.0}, {1}, main()), grad = of({1e-3}, {1}, main());
  const Twin buffer = poison({1}, main()), weight = poison({1}, storage());
  run([&](Device& d, Stream& s, auto at) {
    for (std::int64_t update = 1; update <= 10; ++update) {
      d.sgd(s, {.master = at(master),
                .buffer = at(buffer),
                .grad = at(grad),
                .weight = at(weight),
                .lr = 1.0,
                .update = update});
    }
  });
  EXPECT_NEAR(values(master)[0], 0.99, 1e-6);
  EXPECT_NEAR(values(weight)[0],
              storage() == DType::kBF16  ? 0.98828125
              : storage() == DType::kF16 ? 0.990234375
                                         : 0.99,
              1e-6);
}

TEST_P(FlatKernels, CastRoundsToNearestEvenAndKeepsNan) {  // B75b
  const std::vector<double> x = {0.9910, 1.0 + 0x1p-8, 1.0 + 0x3p-8, kNan, kInfinity, -0.0, 3.4e38};
  const auto n = static_cast<std::int64_t>(x.size());
  const Twin from = of(x, {n}, main());
  const Twin to = poison({n}, DType::kBF16), back = poison({n}, main());
  run([&](Device& d, Stream& s, auto at) {
    d.cast(s, at(from), at(to));
    d.cast(s, at(to), at(back));
  });
  const auto got = values(back);
  EXPECT_EQ(got[0], 0.9921875);
  EXPECT_EQ(got[1], 1.0);
  EXPECT_EQ(got[2], 1.0 + 0x4p-8);
  EXPECT_TRUE(std::isnan(got[3]));
  EXPECT_EQ(got[4], kInfinity);
  EXPECT_TRUE(got[5] == 0.0 && std::signbit(got[5]));
  EXPECT_EQ(got[6], kInfinity);
}

// The ends of fp16's range: 65504 is the largest, 2^-24 the smallest number.
TEST_P(FlatKernels, CastToFp16KnowsSubnormalsAndInfinity) {
  const std::vector<double> x = {65504.0, 65519.0,       65520.0,    -1e6,    kInfinity,
                                 kNan,    0x1p-24,       0x3p-25,    0x1p-25, -0.0,
                                 0x1p-14, 1.0 + 0x1p-11, 0x1.ff8p-15};
  const auto n = static_cast<std::int64_t>(x.size());
  const Twin from = of(x, {n}, main());
  const Twin to = poison({n}, DType::kF16), back = poison({n}, main());
  run([&](Device& d, Stream& s, auto at) {
    d.cast(s, at(from), at(to));
    d.cast(s, at(to), at(back));
  });
  const auto got = values(back);
  EXPECT_TRUE(std::isnan(got[5]));
  const std::vector<double> expected = {65504.0, 65504.0, kInfinity,  -kInfinity, kInfinity,
                                        0.0,     0x1p-24, 0x1p-23,    0.0,        -0.0,
                                        0x1p-14, 1.0,     0x1.ff8p-15};
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i != 5) {
      EXPECT_EQ(got[i], expected[i]) << x[i];
    }
  }
}

TEST_P(FlatKernels, CastBetweenAllFloatingTypes) {
  for (const DType a : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType b : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      const Twin from = random({3, 11}, a), to = poison({3, 11}, b);
      run([&](Device& d, Stream& s, auto at) { d.cast(s, at(from), at(to)); });
      EXPECT_EQ(values(to), oracle_values(to));
    }
  }
}

TEST_P(FlatKernels, ReduceRanksAddsInOrderInTheSumTypeAndRoundsOnce) {
  for (const DType type : {storage(), main(), DType::kI64, DType::kI32, DType::kU8}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
      std::vector<Twin> in;
      for (int rank = 0; rank < 3; ++rank) {
        in.push_back(type == DType::kU8 ? of(doubles(33, rank + 1), {33}, type)
                                        : random({33}, type, 100.0));
      }
      const Twin out = poison({33}, type);
      run([&](Device& d, Stream& s, auto at) {
        d.reduce_ranks(s, {.inputs = {at(in[0]), at(in[1]), at(in[2])},
                           .outputs = {at(out), at(in[1])},
                           .op = op});
      });
      EXPECT_EQ(values(out), oracle_values(out)) << name_of(type);
      EXPECT_EQ(values(out), values(in[1]));
    }
  }
}

TEST_P(FlatKernels, CopyAndFillOfStridedRows) {
  const Twin from = random({4, 9}, storage()).slice(1, 2, 5);
  const Twin to = of(doubles(4 * 7, 3.0), {4, 7}, storage());
  run([&](Device& d, Stream& s, auto at) { d.copy(s, at(from), at(to).slice(1, 1, 5)); });
  EXPECT_EQ(values(to), oracle_values(to));
  EXPECT_EQ(values(to)[0], 3.0);
  run([&](Device& d, Stream& s, auto at) { d.fill_zero(s, at(to).slice(1, 1, 5)); });
  EXPECT_EQ(values(to), oracle_values(to));
  EXPECT_EQ(values(to)[1], 0.0);
  EXPECT_EQ(values(to)[6], 3.0);
}

TEST_P(FlatKernels, AllocatedMemoryIsAlignedAndZero) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{5} << 20}) {
    void* memory = device().allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
    std::vector<std::byte> host(bytes, std::byte{1});
    const auto count = static_cast<std::int64_t>(bytes);
    device().copy(stream(), Tensor(memory, DType::kU8, {count}),
                  Tensor(host.data(), DType::kU8, {count}));
    stream().synchronize();
    EXPECT_TRUE(std::ranges::all_of(host, [](std::byte b) { return b == std::byte{0}; }));
    device().deallocate(memory);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, FlatKernels, ::testing::ValuesIn(device_cases()), case_name);

}  // namespace
}  // namespace tandem::testing
