#include "core/cuda/kernel.cuh"
#include "core/cuda/kernels.h"

namespace tandem::cuda {
namespace {

struct Gelu {
  __device__ float forward(float x) const { return gelu(x); }
  __device__ float backward(float x, float d_out) const { return d_out * gelu_slope(x); }
};
struct Relu {
  __device__ float forward(float x) const { return relu(x); }
  __device__ float backward(float x, float d_out) const { return relu_gradient(x, d_out); }
};

template <typename T, typename Element>
struct Forward {
  const T* pre;
  T* out;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    Pack<float, N> x = load<N>(pre + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x.v[k] = Element().forward(x.v[k]);
    }
    store(out + i, x);
  }
};

template <typename T, typename Element>
struct Backward {
  const T* pre;
  const T* d_out;
  T* d_pre;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    Pack<float, N> x = load<N>(pre + i);
    const Pack<float, N> d = load<N>(d_out + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x.v[k] = Element().backward(x.v[k], d.v[k]);
    }
    store(d_pre + i, x);
  }
};

/// Row r of pre is [gate; up], n columns each.
template <typename T>
struct SwigluForward {
  const T* pre;
  T* out;
  std::int64_t n;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    const T* gates = pre + i + place_of(i, n).row * n;
    Pack<float, N> gate = load<N>(gates);
    const Pack<float, N> up = load<N>(gates + n);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      gate.v[k] = swiglu(gate.v[k], up.v[k]);
    }
    store(out + i, gate);
  }
};

template <typename T>
struct SwigluBackward {
  const T* pre;
  const T* d_out;
  T* d_pre;
  std::int64_t n;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    const std::int64_t at = i + place_of(i, n).row * n;
    Pack<float, N> gate = load<N>(pre + at), up = load<N>(pre + at + n);
    const Pack<float, N> d = load<N>(d_out + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const SwigluGradient<float> gradient = swiglu_gradient(gate.v[k], up.v[k], d.v[k]);
      gate.v[k] = gradient.gate;
      up.v[k] = gradient.up;
    }
    store(d_pre + at, gate);
    store(d_pre + at + n, up);
  }
};

template <typename T, typename Element>
void run_forward(const Launch& launch, const T* pre, T* out, std::int64_t count) {
  with_width<kPack<T>>(aligned_for<kPack<T>>(pre, out), [&](auto width) {
    for_each(launch.stream, count, width, Forward<T, Element>{pre, out});
  });
}

template <typename T, typename Element>
void run_backward(const Launch& launch, const T* pre, const T* d_out, T* d_pre,
                  std::int64_t count) {
  with_width<kPack<T>>(aligned_for<kPack<T>>(pre, d_out, d_pre), [&](auto width) {
    for_each(launch.stream, count, width, Backward<T, Element>{pre, d_out, d_pre});
  });
}

}  // namespace

void activation_forward(const Launch& launch, const ActivationForward& args) {
  visit_storage(args.out.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* pre = args.pre.as<T>();
    T* out = args.out.as<T>();
    const std::int64_t count = args.out.numel(), n = args.out.dim(1);
    switch (args.kind) {
      case Activation::kGelu:
        return run_forward<T, Gelu>(launch, pre, out, count);
      case Activation::kRelu:
        return run_forward<T, Relu>(launch, pre, out, count);
      case Activation::kSwiglu:
        return with_width<kPack<T>>(
            n % kPack<T> == 0 && aligned_for<kPack<T>>(pre, out), [&](auto width) {
              for_each(launch.stream, count, width, SwigluForward<T>{pre, out, n});
            });
    }
  });
}

void activation_backward(const Launch& launch, const ActivationBackward& args) {
  visit_storage(args.d_out.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T *pre = args.pre.as<T>(), *d_out = args.d_out.as<T>();
    T* d_pre = args.d_pre.as<T>();
    const std::int64_t count = args.d_out.numel(), n = args.d_out.dim(1);
    switch (args.kind) {
      case Activation::kGelu:
        return run_backward<T, Gelu>(launch, pre, d_out, d_pre, count);
      case Activation::kRelu:
        return run_backward<T, Relu>(launch, pre, d_out, d_pre, count);
      case Activation::kSwiglu:
        return with_width<kPack<T>>(
            n % kPack<T> == 0 && aligned_for<kPack<T>>(pre, d_out, d_pre), [&](auto width) {
              for_each(launch.stream, count, width, SwigluBackward<T>{pre, d_out, d_pre, n});
            });
    }
  });
}

}  // namespace tandem::cuda
