#include <cmath>

#include "core/cpu/dispatch.h"
#include "core/cpu/kernels.h"

// From here on this file is compiled once for each target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/optimizer.cpp"
#include "hwy/foreach_target.h"
#include "core/cpu/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

/// Calls f with the stored weight's pointer, null where the master is itself the weight.
template <typename F>
HWY_INLINE void visit_weight(const Tensor& weight, const F& f) {
  if (weight.absent()) {
    f(static_cast<float*>(nullptr));
  } else {
    visit_storage(weight.dtype, [&](auto* type) HWY_ATTR {
      f(weight.as<std::remove_pointer_t<decltype(type)>>());
    });
  }
}

void AdamWRange(const AdamW& args, std::int64_t begin, std::int64_t end) {
  const auto set = [](double value)
                       HWY_ATTR { return hn::Set(kFloats, static_cast<float>(value)); };
  const auto update = static_cast<double>(args.update);
  const V scale = set(args.grad_scale), lr = set(-args.lr), eps = set(args.eps);
  const V decay = set(args.weight_decay);
  const V beta1 = set(args.beta1), rest1 = set(1.0 - args.beta1);
  const V beta2 = set(args.beta2), rest2 = set(1.0 - args.beta2);
  const V correct_m = set(1.0 / (1.0 - std::pow(args.beta1, update)));
  const V correct_v = set(1.0 / (1.0 - std::pow(args.beta2, update)));
  float *master = args.master.as<float>(), *m_state = args.m.as<float>();
  float *v_state = args.v.as<float>(), *grad = args.grad.as<float>();
  visit_weight(args.weight, [&](auto* weight) HWY_ATTR {
    for_vectors(begin, end, [&](std::int64_t i, auto part) HWY_ATTR {
      const V g = hn::Mul(load(grad + i, part), scale);
      const V m = hn::MulAdd(beta1, load(m_state + i, part), hn::Mul(rest1, g));
      const V v = hn::MulAdd(beta2, load(v_state + i, part), hn::Mul(rest2, hn::Mul(g, g)));
      const V root = hn::Sqrt(hn::Mul(v, correct_v));
      const V step = hn::Div(hn::Mul(m, correct_m), hn::Add(root, eps));
      const V before = load(master + i, part);
      const V after = hn::MulAdd(lr, hn::MulAdd(decay, before, step), before);
      store(m, m_state + i, part);
      store(v, v_state + i, part);
      store(after, master + i, part);
      if (weight != nullptr) {
        store(after, weight + i, part);
      }
    });
  });
}

void SgdRange(const Sgd& args, std::int64_t begin, std::int64_t end) {
  const V scale = hn::Set(kFloats, static_cast<float>(args.grad_scale));
  const V lr = hn::Set(kFloats, static_cast<float>(-args.lr));
  const V decay = hn::Set(kFloats, static_cast<float>(args.weight_decay));
  const V momentum = hn::Set(kFloats, static_cast<float>(args.momentum));
  float *master = args.master.as<float>(), *state = args.buffer.as<float>();
  const float* grad = args.grad.as<float>();
  visit_weight(args.weight, [&](auto* weight) HWY_ATTR {
    for_vectors(begin, end, [&](std::int64_t i, auto part) HWY_ATTR {
      const V g = hn::Mul(load(grad + i, part), scale);
      const V buffer = args.update == 1 ? g : hn::MulAdd(momentum, load(state + i, part), g);
      const V before = load(master + i, part);
      const V after = hn::MulAdd(lr, hn::MulAdd(decay, before, buffer), before);
      store(buffer, state + i, part);
      store(after, master + i, part);
      if (weight != nullptr) {
        store(after, weight + i, part);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(AdamWRange);
HWY_EXPORT(SgdRange);

void adamw(const AdamW& args, int threads) {
  split(threads, args.master.numel(), 1, 64, [&](std::int64_t begin, std::int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(AdamWRange)(args, begin, end);
  });
}

void sgd(const Sgd& args, int threads) {
  split(threads, args.master.numel(), 1, 64, [&](std::int64_t begin, std::int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(SgdRange)(args, begin, end);
  });
}

}  // namespace tandem::cpu
#endif
