// What cuBLASLt is asked for, without a GPU: against values worked out by hand, and by doing what
// the description says, by column, and comparing with the reference device.
#include "core/cuda/matmul_plan.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/cuda/column_major.h"

namespace tandem::testing {
namespace {

using cuda::describe;
using cuda::Epilogue;
using cuda::MatmulCall;
using cuda::MatmulDescription;
using cuda::tuning_class;

/// Memory that starts on 256 bytes.
class Memory {
 public:
  explicit Memory(std::int64_t elements, DType type = DType::kF32)
      : bytes_(static_cast<std::size_t>(elements) * size_of(type) + 256), type_(type) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    data_ = bytes_.data() + (256 - address % 256) % 256;
  }
  Tensor tensor(const Shape& shape) const { return {data_, type_, shape}; }

 private:
  std::vector<std::byte> bytes_;
  DType type_;
  std::byte* data_;
};

TEST(MatmulPlan, Fc1ForwardByHand) {
  // y [6, 16] = x [6, 8] W^T, W [16, 8]: by column y is [16, 6], W [8, 16] to be transposed.
  const Memory x(48, DType::kBF16), w(128, DType::kBF16), y(96, DType::kBF16);
  const Memory bias(16, DType::kBF16);
  const MatmulCall call = describe(Gemm{.a = x.tensor({6, 8}),
                                        .b = w.tensor({16, 8}),
                                        .c = y.tensor({6, 16}),
                                        .transpose_b = true,
                                        .bias = bias.tensor({16})},
                                   {.tf32 = true, .sms_beside_collective = 116});
  EXPECT_EQ(call.description, (MatmulDescription{.m = 16,
                                                 .n = 6,
                                                 .k = 8,
                                                 .transpose_a = true,
                                                 .transpose_b = false,
                                                 .lda = 8,
                                                 .ldb = 8,
                                                 .ldd = 16,
                                                 .ld_aux = 0,
                                                 .input = DType::kBF16,
                                                 .output = DType::kBF16,
                                                 .bias = DType::kBF16,
                                                 .accumulate = false,
                                                 .tf32 = false,
                                                 .sm_count = 0,
                                                 .epilogue = Epilogue::kBias,
                                                 .alignment_a = 256,
                                                 .alignment_b = 256,
                                                 .alignment_d = 256,
                                                 .alignment_bias = 256,
                                                 .alignment_aux = 256}));
  EXPECT_EQ(call.operands.a, w.tensor({1}).data);
  EXPECT_EQ(call.operands.b, x.tensor({1}).data);
  EXPECT_EQ(call.operands.d, y.tensor({1}).data);
  EXPECT_EQ(call.operands.bias, bias.tensor({1}).data);
  EXPECT_EQ(call.operands.aux, nullptr);
  EXPECT_EQ(call.description.to_string(), "[6, 16] over 8, bf16 to bf16, bias");
}

TEST(MatmulPlan, Fc1ForwardWithGeluSavesThePreActivationAsAux) {
  const Memory x(48), w(128), pre(96), out(96), bias(16);
  const MatmulCall call = describe(GemmActivation{.gemm = {.a = x.tensor({6, 8}),
                                                           .b = w.tensor({16, 8}),
                                                           .c = pre.tensor({6, 16}),
                                                           .transpose_b = true,
                                                           .bias = bias.tensor({16})},
                                                  .kind = Activation::kGelu,
                                                  .out = out.tensor({6, 16})},
                                   {});
  EXPECT_EQ(call.description.epilogue, Epilogue::kGeluAuxBias);
  EXPECT_EQ(call.description.ld_aux, 16);
  EXPECT_EQ(call.operands.aux, pre.tensor({1}).data);
  EXPECT_EQ(call.operands.d, out.tensor({1}).data);
}

TEST(MatmulPlan, WeightGradientByHand) {
  // dW [16, 8] += dy^T x, dy [6, 16], x [6, 8]: by column dW is [8, 16] = x [8, 6] dy^T.
  const Memory dy(96, DType::kBF16), x(48, DType::kBF16), dw(128), db(16);
  const GemmBiasGradient args{.gemm = {.a = dy.tensor({6, 16}),
                                       .b = x.tensor({6, 8}),
                                       .c = dw.tensor({16, 8}),
                                       .transpose_a = true,
                                       .write = Write::kAccumulate},
                              .d_bias = db.tensor({16})};
  Memory scratch(16);
  const MatmulCall call = describe(args, scratch.tensor({16}).data, {});
  const MatmulDescription& d = call.description;
  EXPECT_EQ(std::vector<std::int64_t>({d.m, d.n, d.k}), std::vector<std::int64_t>({8, 16, 6}));
  EXPECT_FALSE(d.transpose_a);
  EXPECT_TRUE(d.transpose_b);
  EXPECT_EQ(std::vector<std::int64_t>({d.lda, d.ldb, d.ldd}),
            std::vector<std::int64_t>({8, 16, 8}));
  EXPECT_TRUE(d.accumulate);
  EXPECT_EQ(d.epilogue, Epilogue::kBiasGradB);
  EXPECT_EQ(d.input, DType::kBF16);
  EXPECT_EQ(d.output, DType::kF32);
  EXPECT_EQ(d.bias, DType::kF32);
  EXPECT_EQ(call.operands.bias, scratch.tensor({1}).data);
}

TEST(MatmulPlan, LeavesMultiprocessorsToACollectiveBesideIt) {
  EXPECT_EQ(cuda::sms_beside_collective(132), 116);  // H100
  EXPECT_EQ(cuda::sms_beside_collective(108), 92);   // A100
  EXPECT_EQ(cuda::sms_beside_collective(46), 0) << "a small GPU has none to spare";
  const Memory memory(64);
  Gemm args{.a = memory.tensor({8, 8}), .b = memory.tensor({8, 8}), .c = memory.tensor({8, 8})};
  EXPECT_EQ(describe(args, {.sms_beside_collective = 116}).description.sm_count, 0);
  args.beside_collective = true;
  EXPECT_EQ(describe(args, {.sms_beside_collective = 116}).description.sm_count, 116);
}

TEST(MatmulPlan, PlansDifferInEverythingThatAnAlgorithmDependsOn) {
  const Memory memory(4096), half(4096, DType::kBF16);
  const Gemm base{
      .a = memory.tensor({8, 8}), .b = memory.tensor({8, 8}), .c = memory.tensor({8, 8})};
  std::vector<MatmulDescription> all = {describe(base, {}).description};
  const auto add = [&](const auto& change, const cuda::MatmulSettings& settings = {}) {
    Gemm args = base;
    change(args);
    all.push_back(describe(args, settings).description);
  };
  add([](Gemm&) {}, {.tf32 = true});
  add([](Gemm& g) { g.beside_collective = true; }, {.sms_beside_collective = 116});
  add([](Gemm& g) { g.transpose_a = true; });
  add([](Gemm& g) { g.transpose_b = true; });
  add([](Gemm& g) { g.write = Write::kAccumulate; });
  add([&](Gemm& g) { g.bias = memory.tensor({8}); });
  add([&](Gemm& g) { g.bias = memory.tensor({12}).slice(0, 4, 8); });
  add([&](Gemm& g) { g.a = memory.tensor({8, 16}).slice(1, 0, 8); });
  add([&](Gemm& g) { g.b = memory.tensor({8, 16}).slice(1, 0, 8); });
  add([&](Gemm& g) { g.c = memory.tensor({8, 16}).slice(1, 0, 8); });
  add([&](Gemm& g) { g.c = memory.tensor({9, 8}).slice(0, 1, 8); });
  add([&](Gemm& g) { g.a = g.b = half.tensor({8, 8}); });
  add([&](Gemm& g) { g.a = g.b = g.c = half.tensor({8, 8}); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(all[i], all[j]) << i << " and " << j;
    }
  }
}

TEST(MatmulPlan, StridesOfASingleRowAreItsLength) {
  const Memory memory(64);
  const Tensor row = memory.tensor({4, 16}).slice(0, 1, 1).slice(1, 0, 8);
  const auto d =
      describe(Gemm{.a = row, .b = memory.tensor({8, 3}), .c = memory.tensor({1, 3})}, {})
          .description;
  EXPECT_EQ(d.ldb, 8);
  EXPECT_EQ(d.n, 1);
}

// A training run meets as many numbers of rows as it has steps; of those up to 4096 there are seven
// classes from 64 on, and one weight's are never another's of twice the width.
TEST(MatmulPlan, NumbersOfRowsShareATuning) {
  std::set<MatmulDescription> classes;
  for (std::int64_t rows = 64; rows <= 4096; rows += 64) {
    MatmulDescription forward{.m = 1024, .n = rows, .k = 512, .lda = 512, .ldb = 512, .ldd = 1024};
    classes.insert(tuning_class(forward));
  }
  EXPECT_EQ(classes.size(), 7u);
  const MatmulDescription one{.m = 100, .n = 65, .k = 512};
  EXPECT_EQ(tuning_class(one), (MatmulDescription{.m = 128, .n = 128, .k = 512}));
  EXPECT_NE(tuning_class(one), tuning_class({.m = 200, .n = 65, .k = 512}));
}

TEST(MatmulPlan, FusesOnlyWhatTheLibraryTakes) {
  const Memory memory(1024), half(64, DType::kBF16);
  const auto gelu = [&](std::int64_t n, const Tensor& pre) {
    return cuda::can_fuse(describe(
        GemmActivation{.gemm = {.a = memory.tensor({4, 8}), .b = memory.tensor({8, n}), .c = pre},
                       .kind = Activation::kGelu,
                       .out = memory.tensor({4, n})},
        {}));
  };
  EXPECT_TRUE(gelu(16, memory.tensor({4, 16})));
  EXPECT_FALSE(gelu(12, memory.tensor({4, 12})));  // aux columns not 8 apart
  EXPECT_FALSE(gelu(16, memory.tensor({65}).slice(0, 1, 64).reshape({4, 16})));
  const auto bias = [&](const Tensor& vector) {
    return cuda::can_fuse(describe(Gemm{.a = memory.tensor({4, 8}),
                                        .b = memory.tensor({8, 16}),
                                        .c = memory.tensor({4, 16}),
                                        .bias = vector},
                                   {}));
  };
  EXPECT_TRUE(bias(memory.tensor({16})));
  EXPECT_TRUE(bias(memory.tensor({20}).slice(0, 4, 16)));
  EXPECT_FALSE(bias(memory.tensor({17}).slice(0, 1, 16)));
  EXPECT_FALSE(bias(half.tensor({16})));  // not of the output's type
}

TEST(MatmulPlan, RefusesAGeluBackwardInPlace) {
  const Memory memory(64), pre(64);
  EXPECT_THROW(describe(GemmActivationBackward{.gemm = {.a = memory.tensor({8, 8}),
                                                        .b = memory.tensor({8, 8}),
                                                        .c = memory.tensor({8, 8})},
                                               .kind = Activation::kGelu,
                                               .pre = pre.tensor({8, 8}),
                                               .d_pre = pre.tensor({8, 8})},
                        {}),
               InternalError);
}

/// A use of a product: the description, done by column, must give what the reference gives. Sums
/// are of small integers, so that every one is exact.
class MatmulUses : public ::testing::TestWithParam<int> {
 protected:
  MatmulUses() : device_(make_reference_device(1)), stream_(device_->make_stream("test")) {}

  /// Two equal matrices with rows `gap` elements longer than wanted.
  struct Pair {
    Tensor here, there;
  };
  Pair integers(const Shape& shape, std::int64_t gap = 0) {
    const std::int64_t columns = shape[shape.rank() - 1];
    const std::int64_t rows = shape.numel() / std::max<std::int64_t>(columns, 1);
    Pair pair;
    std::uint32_t first = state_;
    for (Tensor* tensor : {&pair.here, &pair.there}) {
      state_ = first;
      memory_.push_back(std::make_unique<Memory>(rows * (columns + gap)));
      const Tensor whole = memory_.back()->tensor({rows, columns + gap});
      for (float& value : whole.span<float>()) {
        state_ = state_ * 1664525u + 1013904223u;
        value = static_cast<float>(state_ >> 28) - 7.0f;
      }
      *tensor = shape.rank() == 1 ? whole.flat() : whole.slice(1, 0, columns);
    }
    return pair;
  }
  static void expect_equal(const Pair& pair, const std::string& what) {
    for (std::int64_t i = 0; i < pair.here.numel(); ++i) {
      const std::int64_t columns = pair.here.dim(pair.here.rank() - 1);
      const std::int64_t at = i / columns * pair.here.strides[0] + i % columns;
      const std::int64_t place = pair.here.rank() == 1 ? i : at;
      ASSERT_EQ(pair.here.as<float>()[place], pair.there.as<float>()[place]) << what << ", " << i;
    }
  }

  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::uint32_t state_ = 7;
};

TEST_P(MatmulUses, DoneByColumnAreTheProduct) {
  const bool ta = GetParam() & 1, tb = GetParam() & 2, strided = GetParam() & 4;
  const std::int64_t m = 5, n = 16, k = 9, gap = strided ? 8 : 0;
  const auto a = integers(ta ? Shape{k, m} : Shape{m, k}, gap);
  const auto b = integers(tb ? Shape{n, k} : Shape{k, n}, gap);
  const auto gemm = [&](Tensor Pair::*side, const Pair& c) {
    return Gemm{.a = a.*side, .b = b.*side, .c = c.*side, .transpose_a = ta, .transpose_b = tb};
  };

  for (const Write write : {Write::kOverwrite, Write::kAccumulate}) {
    for (const bool with_bias : {false, true}) {
      if (with_bias && write == Write::kAccumulate) {
        continue;
      }
      const auto c = integers({m, n}, gap), bias = integers({n});
      const auto make = [&](Tensor Pair::*side) {
        Gemm args = gemm(side, c);
        args.write = write;
        args.bias = with_bias ? bias.*side : Tensor{};
        return args;
      };
      execute_column_major(describe(make(&Pair::here), {}));
      device().gemm(stream(), make(&Pair::there));
      expect_equal(c, with_bias ? "bias" : "plain");
    }
  }
  for (const bool with_bias : {false, true}) {
    const auto pre = integers({m, n}), out = integers({m, n}), bias = integers({n});
    const auto make = [&](Tensor Pair::*side) {
      GemmActivation args{.gemm = gemm(side, pre), .kind = Activation::kGelu, .out = out.*side};
      args.gemm.bias = with_bias ? bias.*side : Tensor{};
      return args;
    };
    execute_column_major(describe(make(&Pair::here), {}));
    EXPECT_FALSE(device().gemm_activation(stream(), make(&Pair::there)));
    device().activation_forward(stream(),
                                {.kind = Activation::kGelu, .pre = pre.there, .out = out.there});
    expect_equal(pre, "saved pre-activation");
    expect_equal(out, "activated");
  }
  {
    const auto pre = integers({m, n}), d_pre = integers({m, n});
    const auto make = [&](Tensor Pair::*side) {
      return GemmActivationBackward{.gemm = gemm(side, d_pre),
                                    .kind = Activation::kGelu,
                                    .pre = pre.*side,
                                    .d_pre = d_pre.*side};
    };
    execute_column_major(describe(make(&Pair::here), {}));
    EXPECT_FALSE(device().gemm_activation_backward(stream(), make(&Pair::there)));
    device().activation_backward(
        stream(),
        {.kind = Activation::kGelu, .pre = pre.there, .d_out = d_pre.there, .d_pre = d_pre.there});
    expect_equal(d_pre, "gelu backward");
  }
  if (ta && !strided) {
    for (const Write write : {Write::kOverwrite, Write::kAccumulate}) {
      const auto c = integers({m, n}), d_bias = integers({m});
      const auto make = [&](Tensor Pair::*side) {
        GemmBiasGradient args{.gemm = gemm(side, c), .d_bias = d_bias.*side};
        args.gemm.write = write;
        return args;
      };
      execute_column_major(describe(make(&Pair::here), d_bias.here.data, {}));
      device().gemm(stream(), make(&Pair::there).gemm);
      device().column_sum(stream(), {.x = a.there, .out = d_bias.there});
      expect_equal(c, "weight gradient");
      expect_equal(d_bias, "bias gradient");  // overwritten whatever `write`
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TransposedAndStrided, MatmulUses, ::testing::Range(0, 8));

}  // namespace
}  // namespace tandem::testing
