#include "core/cuda/kernel.cuh"
#include "core/cuda/kernels.h"

namespace tandem::cuda {
namespace {

/// Masters and states are fp32: four of them are 16 bytes.
constexpr int kWidth = 4;

template <typename T>
struct AdamWElements {
  float* master;
  float* m;
  float* v;
  const float* grad;
  T* weight;  ///< null where the master is the stored weight
  AdamWRule rule;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    Pack<float, N> w = load<N>(master + i), first = load<N>(m + i), second = load<N>(v + i);
    const Pack<float, N> g = load<N>(grad + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const AdamWState state = rule.apply({w.v[k], first.v[k], second.v[k]}, g.v[k]);
      w.v[k] = state.master;
      first.v[k] = state.m;
      second.v[k] = state.v;
    }
    store(master + i, w);
    store(m + i, first);
    store(v + i, second);
    if (weight != nullptr) {
      store(weight + i, w);
    }
  }
};

template <typename T>
struct SgdElements {
  float* master;
  float* buffer;
  const float* grad;
  T* weight;
  SgdRule rule;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    Pack<float, N> w = load<N>(master + i), b = load<N>(buffer + i);
    const Pack<float, N> g = load<N>(grad + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const SgdState state = rule.apply({w.v[k], b.v[k]}, g.v[k]);
      w.v[k] = state.master;
      b.v[k] = state.buffer;
    }
    store(master + i, w);
    store(buffer + i, b);
    if (weight != nullptr) {
      store(weight + i, w);
    }
  }
};

template <typename F>
void visit_weight(const Tensor& weight, const F& f) {
  if (weight.absent()) {
    f(static_cast<float*>(nullptr));
  } else {
    visit_storage(weight.dtype,
                  [&](auto* type) { f(weight.as<std::remove_pointer_t<decltype(type)>>()); });
  }
}

}  // namespace

void adamw(const Launch& launch, const AdamW& args) {
  visit_weight(args.weight, [&](auto* weight) {
    using T = std::remove_pointer_t<decltype(weight)>;
    const AdamWElements<T> elements{args.master.as<float>(),
                                    args.m.as<float>(),
                                    args.v.as<float>(),
                                    args.grad.as<float>(),
                                    weight,
                                    AdamWRule(args)};
    const bool packed = aligned_for<kWidth>(elements.master, elements.m, elements.v, elements.grad,
                                            elements.weight);
    with_width<kWidth>(
        packed, [&](auto width) { for_each(launch.stream, args.master.numel(), width, elements); });
  });
}

void sgd(const Launch& launch, const Sgd& args) {
  visit_weight(args.weight, [&](auto* weight) {
    using T = std::remove_pointer_t<decltype(weight)>;
    const SgdElements<T> elements{args.master.as<float>(), args.buffer.as<float>(),
                                  args.grad.as<float>(), weight, SgdRule(args)};
    const bool packed =
        aligned_for<kWidth>(elements.master, elements.buffer, elements.grad, elements.weight);
    with_width<kWidth>(
        packed, [&](auto width) { for_each(launch.stream, args.master.numel(), width, elements); });
  });
}

}  // namespace tandem::cuda
