#include "core/cuda/kernel.cuh"
#include "core/cuda/kernels.h"

namespace tandem::cuda {
namespace {

template <typename From, typename To>
struct Cast {
  const From* from;
  To* to;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    const Pack<From, N> in = load_pack<N>(from + i);
    Pack<To, N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if constexpr (std::is_same_v<To, From>) {
        out.v[k] = in.v[k];
      } else {
        out.v[k] = rounded<To>(widened(in.v[k]));
      }
    }
    store_pack(to + i, out);
  }
};

template <typename T, typename B>
struct AddBias {
  T* out;
  const B* bias;
  std::int64_t n, stride;
  bool accumulate;

  __device__ void operator()(std::int64_t i, Width<1>) const {
    const Place place = place_of(i, n);
    T* at = out + place.row * stride + place.column;
    const float before = accumulate ? value_of(*at) : 0.0f;
    *at = rounded<T>(before + value_of(bias[place.column]));
  }
};

}  // namespace

void cast(const Launch& launch, const Tensor& from, const Tensor& to) {
  visit_floating(from.dtype, [&](auto in) {
    visit_floating(to.dtype, [&](auto out) {
      using From = decltype(in);
      using To = decltype(out);
      const From* source = from.as<From>();
      To* target = to.as<To>();
      with_width<4>(aligned_for<4>(source, target), [&](auto width) {
        for_each(launch.stream, from.numel(), width, Cast<From, To>{source, target});
      });
    });
  });
}

void add_bias(const Launch& launch, const Tensor& out, const Tensor& bias, Write write) {
  visit_storage(out.dtype, [&](auto* out_type) {
    visit_storage(bias.dtype, [&](auto* bias_type) {
      using T = std::remove_pointer_t<decltype(out_type)>;
      using B = std::remove_pointer_t<decltype(bias_type)>;
      for_each(launch.stream, out.numel(), Width<1>{},
               AddBias<T, B>{out.as<T>(), bias.as<B>(), out.dim(1), out.strides[0],
                             write == Write::kAccumulate});
    });
  });
}

}  // namespace tandem::cuda
