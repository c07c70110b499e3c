#include <cmath>

#include "core/parallel_for.h"
#include "core/reference/elements.h"
#include "core/reference/kernels.h"

namespace tandem::reference {

void adamw(const AdamW& args, int threads) {
  const double correction_m = 1.0 - std::pow(args.beta1, static_cast<double>(args.update));
  const double correction_v = 1.0 - std::pow(args.beta2, static_cast<double>(args.update));
  parallel_for(threads, args.master.numel(), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double g = load(args.grad, i) * args.grad_scale;
      const double m = args.beta1 * load(args.m, i) + (1.0 - args.beta1) * g;
      const double v = args.beta2 * load(args.v, i) + (1.0 - args.beta2) * g * g;
      const double step = m / correction_m / (std::sqrt(v / correction_v) + args.eps);
      const double w = load(args.master, i);
      store(args.m, i, m);
      store(args.v, i, v);
      store(args.master, i, w - args.lr * (step + args.weight_decay * w));
      if (!args.weight.absent()) {
        // The stored weight is the rounded master, not the rounded unrounded one.
        store(args.weight, i, load(args.master, i));
      }
    }
  });
}

void sgd(const Sgd& args, int threads) {
  parallel_for(threads, args.master.numel(), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double g = load(args.grad, i) * args.grad_scale;
      const double buffer = args.update == 1 ? g : args.momentum * load(args.buffer, i) + g;
      const double w = load(args.master, i);
      store(args.buffer, i, buffer);
      store(args.master, i, w - args.lr * (buffer + args.weight_decay * w));
      if (!args.weight.absent()) {
        store(args.weight, i, load(args.master, i));
      }
    }
  });
}

}  // namespace tandem::reference
