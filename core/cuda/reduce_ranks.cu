#include "core/cuda/kernel.cuh"
#include "core/cuda/kernels.h"

namespace tandem::cuda {
namespace {

constexpr int kMaxRanks = 64;

/// Passed by value: no copy to the device has to be waited for.
template <typename T>
struct Pointers {
  T* at[kMaxRanks];
  int count;
};

template <typename T, typename Sum>
struct Reduce {
  Pointers<T> inputs, outputs;
  ReduceOp op;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    Sum sums[N];
    const Pack<T, N> first = load_pack<N>(inputs.at[0] + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sums[k] = widened(first.v[k]);
    }
    for (int rank = 1; rank < inputs.count; ++rank) {
      const Pack<T, N> pack = load_pack<N>(inputs.at[rank] + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const Sum x = widened(pack.v[k]);
        sums[k] = op == ReduceOp::kSum   ? sums[k] + x
                  : op == ReduceOp::kMax ? larger(sums[k], x)
                                         : smaller(sums[k], x);
      }
    }
    Pack<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      result.v[k] = rounded<T>(sums[k]);
    }
    for (int out = 0; out < outputs.count; ++out) {
      store_pack(outputs.at[out] + i, result);
    }
  }
};

template <typename T, typename Sum>
void run(const Launch& launch, const ReduceRanks& args) {
  ensure(args.inputs.size() <= kMaxRanks && args.outputs.size() <= kMaxRanks,
         "reduce_ranks: the cuda device adds at most 64 ranks");
  Reduce<T, Sum> reduce{};
  reduce.op = args.op;
  bool aligned = true;
  const auto collect = [&](const std::vector<Tensor>& tensors, Pointers<T>& pointers) {
    for (const Tensor& tensor : tensors) {
      pointers.at[pointers.count++] = tensor.as<T>();
      aligned = aligned && aligned_for<kPack<T>>(tensor.as<T>());
    }
  };
  collect(args.inputs, reduce.inputs);
  collect(args.outputs, reduce.outputs);
  with_width<kPack<T>>(aligned, [&](auto width) {
    for_each(launch.stream, args.inputs.front().numel(), width, reduce);
  });
}

}  // namespace

void reduce_ranks(const Launch& launch, const ReduceRanks& args) {
  switch (args.inputs.front().dtype) {
    case DType::kF64:
      return run<double, double>(launch, args);
    case DType::kF32:
      return run<float, float>(launch, args);
    case DType::kBF16:
      return run<BFloat16, float>(launch, args);
    case DType::kF16:
      return run<Float16, float>(launch, args);
    case DType::kI64:
      return run<std::int64_t, std::int64_t>(launch, args);
    case DType::kI32:
      return run<std::int32_t, std::int64_t>(launch, args);
    case DType::kU8:
      return run<std::uint8_t, std::int64_t>(launch, args);
  }
}

}  // namespace tandem::cuda
