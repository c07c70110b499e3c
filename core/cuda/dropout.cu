#include "core/cuda/kernel.cuh"
#include "core/cuda/kernels.h"

namespace tandem::cuda {
namespace {

/// values[k] belongs to column + k of its row; all draws of a quad of columns come at once. For
/// N > 1 the first column is a multiple of N, and N of 4.
template <int N>
__device__ void drop(const DropoutRule& rule, std::int64_t row_key, std::int64_t column,
                     Pack<float, N>& values) {
  if constexpr (N == 1) {
    const PhiloxBlock draws = rule.draws(row_key, column / 4);
    const int at = static_cast<int>(column % 4);
    // Not indexed by `at`: that would put the draws into local memory.
    const std::uint32_t low = at == 0 ? draws.x[0] : draws.x[1];
    const std::uint32_t high = at == 2 ? draws.x[2] : draws.x[3];
    values.v[0] = rule.apply(values.v[0], at < 2 ? low : high);
  } else {
    static_assert(N % 4 == 0);
#pragma unroll
    for (int quad = 0; quad < N / 4; ++quad) {
      const PhiloxBlock draws = rule.draws(row_key, column / 4 + quad);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        values.v[4 * quad + k] = rule.apply(values.v[4 * quad + k], draws.x[k]);
      }
    }
  }
}

template <typename T>
struct BiasDropoutAddElements {
  const T* branch;
  const T* bias;  ///< null for none
  const T* residual;
  T* out;
  const std::int64_t* row_keys;  ///< null where nothing is dropped
  DropoutRule rule;
  std::int64_t n;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    const Place place = place_of(i, n);
    Pack<float, N> x = load<N>(branch + i);
    if (bias != nullptr) {
      const Pack<float, N> b = load<N>(bias + place.column);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        x.v[k] += b.v[k];
      }
    }
    if (row_keys != nullptr) {
      drop(rule, row_keys[place.row], place.column, x);
    }
    const Pack<float, N> r = load<N>(residual + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x.v[k] += r.v[k];
    }
    store(out + i, x);
  }
};

template <typename T>
struct DropoutBackwardElements {
  const T* d_out;
  T* d_in;
  const std::int64_t* row_keys;
  DropoutRule rule;
  std::int64_t n;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    Pack<float, N> x = load<N>(d_out + i);
    if (row_keys != nullptr) {
      const Place place = place_of(i, n);
      drop(rule, row_keys[place.row], place.column, x);
    }
    store(d_in + i, x);
  }
};

const std::int64_t* keys_of(const Dropout& dropout, const Tensor& row_keys) {
  return dropout.p > 0.0 ? row_keys.as<std::int64_t>() : nullptr;
}

}  // namespace

void bias_dropout_add(const Launch& launch, const BiasDropoutAdd& args) {
  visit_storage(args.branch.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const BiasDropoutAddElements<T> elements{args.branch.as<T>(),
                                             pointer<T>(args.bias),
                                             args.residual.as<T>(),
                                             args.out.as<T>(),
                                             keys_of(args.dropout, args.row_keys),
                                             DropoutRule(args.dropout),
                                             args.branch.dim(1)};
    const bool packed =
        elements.n % kPack<T> == 0 &&
        aligned_for<kPack<T>>(elements.branch, elements.bias, elements.residual, elements.out);
    with_width<kPack<T>>(
        packed, [&](auto width) { for_each(launch.stream, args.branch.numel(), width, elements); });
  });
}

void dropout_backward(const Launch& launch, const DropoutBackward& args) {
  visit_storage(args.d_out.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const DropoutBackwardElements<T> elements{args.d_out.as<T>(), args.d_in.as<T>(),
                                              keys_of(args.dropout, args.row_keys),
                                              DropoutRule(args.dropout), args.d_out.dim(1)};
    const bool packed =
        elements.n % kPack<T> == 0 && aligned_for<kPack<T>>(elements.d_out, elements.d_in);
    with_width<kPack<T>>(
        packed, [&](auto width) { for_each(launch.stream, args.d_out.numel(), width, elements); });
  });
}

}  // namespace tandem::cuda
