#include "core/cuda/sums.cuh"

namespace tandem::cuda {
namespace {

template <typename T>
struct Column {
  const T* x;
  std::int64_t n;

  template <int N>
  __device__ void operator()(std::int64_t row, std::int64_t column, Pack<float, N>* sums,
                             Width<N>) const {
    const Pack<float, N> values = load<N>(x + row * n + column);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sums[0].v[k] += values.v[k];
    }
  }
};

template <typename T>
struct Square {
  const T* x;

  template <int N>
  __device__ double operator()(std::int64_t i, Width<N>) const {
    const Pack<T, N> pack = load_pack<N>(x + i);
    double sum = 0.0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const double value = widened(pack.v[k]);
      sum += value * value;
    }
    return sum;
  }
};

}  // namespace

void column_sum(const Launch& launch, const ColumnSum& args) {
  visit_storage(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const Column<T> column{args.x.as<T>(), args.x.dim(1)};
    const ColumnOutputs<1> outputs{{args.out.as<float>()}, args.write == Write::kAccumulate};
    with_width<kPack<T>>(
        column.n % kPack<T> == 0 && aligned_for<kPack<T>>(column.x),
        [&](auto width) { sum_columns(launch, args.x.dim(0), column.n, width, column, outputs); });
  });
}

void sum_of_squares(const Launch& launch, const SumOfSquares& args) {
  visit_floating(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    const Square<T> square{args.x.as<T>()};
    with_width<kPack<T>>(aligned_for<kPack<T>>(square.x), [&](auto width) {
      sum_all(launch, args.x.numel(), width, square, 1.0, args.write, args.out.as<double>());
    });
  });
}

}  // namespace tandem::cuda
