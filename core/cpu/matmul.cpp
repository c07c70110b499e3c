#include "core/cpu/matmul.h"

#include <algorithm>

#include "core/cpu/converted_blocks.h"
#include "core/cpu/kernels.h"

namespace tandem::cpu {
namespace {

/// What is left where there is nothing to multiply: zeros or the old c, and the bias.
void empty_contraction(const Gemm& args, int threads) {
  if (args.write == Write::kAccumulate) {
    return;
  }
  fill_zero_host(args.c);
  for (std::int64_t r = 0; !args.bias.absent() && r < args.c.dim(0); ++r) {
    convert_matrix(args.bias.reshape({1, args.c.dim(1)}), args.c.slice(0, r, 1), threads);
  }
}

/// Rows [start, start + length) of op(matrix)'s dimension `dimension`.
Tensor slice_of(const Tensor& matrix, bool transpose, int dimension, std::int64_t start,
                std::int64_t length) {
  return matrix.slice(transpose ? 1 - dimension : dimension, start, length);
}

}  // namespace

Matmul::Matmul(int threads) : threads_(threads) {}

void Matmul::run(const Gemm& args) {
  if (args.c.numel() == 0) {
    return;
  }
  if (args.inner() == 0) {  // oneDNN 2.6 divides by zero
    return empty_contraction(args, threads_);
  }
  try {
    const ThreadCount scope(threads_);
    if (args.a.dtype == DType::kF32 && args.c.dtype == DType::kF32) {
      multiply(args);
    } else if (args.a.dtype == DType::kBF16 && multiplies_bf16()) {
      multiply(args);
    } else {
      multiply_converted(args);
    }
  } catch (const dnnl::error& error) {
    throw matmul_error(args, error.what());
  }
}

Matmul::Plan& Matmul::plan(const Gemm& args) {
  const Key key{.sizes_and_strides = {args.c.dim(0), args.c.dim(1), args.inner(), args.a.strides[0],
                                      args.b.strides[0], args.c.strides[0]},
                .input = args.a.dtype,
                .output = args.c.dtype,
                .transpose_a = args.transpose_a,
                .transpose_b = args.transpose_b,
                .bias = !args.bias.absent(),
                .accumulate = args.write == Write::kAccumulate};
  if (const auto found = plans_.find(key); found != plans_.end()) {
    return found->second;
  }
  const dnnl::matmul::primitive_desc primitive = make_matmul(args, engine_);
  const auto memory = [&](const dnnl::memory::desc& described) {
    return dnnl::memory(described, engine_, DNNL_MEMORY_NONE);
  };
  Plan made{.primitive = dnnl::matmul(primitive),
            .a = memory(primitive.src_desc()),
            .b = memory(primitive.weights_desc()),
            .c = memory(primitive.dst_desc()),
            .bias = {},
            .scratchpad = memory(primitive.scratchpad_desc()),
            .arguments = {},
            .scratchpad_bytes = scratchpad_bytes(primitive, threads_)};
  made.arguments = {{DNNL_ARG_SRC, made.a},
                    {DNNL_ARG_WEIGHTS, made.b},
                    {DNNL_ARG_DST, made.c},
                    {DNNL_ARG_SCRATCHPAD, made.scratchpad}};
  if (key.bias) {
    made.bias = memory(primitive.bias_desc());
    made.arguments.emplace(DNNL_ARG_BIAS, made.bias);
  }
  return plans_.emplace(key, std::move(made)).first->second;
}

void Matmul::multiply(const Gemm& args) {
  Plan& plan = this->plan(args);
  plan.a.set_data_handle(args.a.data);
  plan.b.set_data_handle(args.b.data);
  plan.c.set_data_handle(args.c.data);
  if (!args.bias.absent()) {
    plan.bias.set_data_handle(args.bias.data);
  }
  plan.scratchpad.set_data_handle(scratchpad_.reserve<std::byte>(plan.scratchpad_bytes));
  plan.primitive.execute(stream_, plan.arguments);
  stream_.wait();
}

void Matmul::multiply_converted(const Gemm& args) {
  const std::int64_t m = args.c.dim(0), n = args.c.dim(1), k = args.inner();
  const bool convert_c = args.c.dtype != DType::kF32;
  const ConvertedBlocks blocks(n, k, convert_c);
  const std::int64_t columns = blocks.columns, depth = blocks.depth;
  float* a_memory = blocks_.reserve<float>(static_cast<std::size_t>(blocks.floats()));
  float* b_memory = a_memory + blocks.a;
  float* c_memory = b_memory + blocks.b;
  float* bias_memory = c_memory + blocks.c;

  for (std::int64_t j = 0; j < n; j += columns) {
    const std::int64_t width = std::min(columns, n - j);
    Gemm block = args;
    if (!args.bias.absent()) {
      block.bias = Tensor(bias_memory, DType::kF32, {width});
      cast(args.bias.slice(0, j, width), block.bias, threads_);
    }
    for (std::int64_t p = 0; p < k; p += depth) {
      const std::int64_t length = std::min(depth, k - p);
      const Tensor b =
          slice_of(slice_of(args.b, args.transpose_b, 1, j, width), args.transpose_b, 0, p, length);
      block.b = Tensor(b_memory, DType::kF32, b.shape);
      convert_matrix(b, block.b, threads_);
      if (p > 0) {
        block.write = Write::kAccumulate;
        block.bias = Tensor();
      }
      for (std::int64_t i = 0; i < m; i += kBlockRows) {
        const std::int64_t height = std::min(kBlockRows, m - i);
        const Tensor a = slice_of(slice_of(args.a, args.transpose_a, 0, i, height),
                                  args.transpose_a, 1, p, length);
        const Tensor c = args.c.slice(0, i, height).slice(1, j, width);
        block.a = Tensor(a_memory, DType::kF32, a.shape);
        convert_matrix(a, block.a, threads_);
        block.c = convert_c ? Tensor(c_memory, DType::kF32, c.shape) : c;
        if (convert_c && args.write == Write::kAccumulate) {
          convert_matrix(c, block.c, threads_);
        }
        multiply(block);
        if (convert_c) {
          convert_matrix(block.c, c, threads_);
        }
      }
    }
  }
}

}  // namespace tandem::cpu
