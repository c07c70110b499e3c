// Faults between the reduced gradients and the new weights: norm, clipping, optimizer.
#include <cmath>

#include "optim/gradient_norm.h"
#include "tests/tools/faulty.h"

namespace tandem::test {

namespace {

using StateOf = std::function<const TrainState*()>;

Config plain_sgd() {
  Config config = fault_config();
  config.optim.kind = OptimizerKind::kSgd;
  config.optim.lr = 0.5;
  return config;
}

template <typename Arguments>
Fault update_fault(const std::string& name, const Config& config,
                   const std::vector<std::string>& named, Kernel<Arguments> FaultyKernels::*kernel,
                   const std::function<Arguments(Arguments, const Layout&)>& change,
                   void (Device::*real_kernel)(Stream&, const Arguments&)) {
  return {.name = name,
          .config = config,
          .named = named,
          .kernels = [=](const Layout& layout, const StateOf&) {
            FaultyKernels kernels;
            kernels.*kernel = [=](Device& real, Stream& stream, Arguments args) {
              (real.*real_kernel)(stream, change(args, layout));
            };
            return kernels;
          }};
}

Fault adamw_fault(const std::string& name, const std::vector<std::string>& named,
                  const std::function<AdamW(AdamW, const Layout&)>& change) {
  return update_fault<AdamW>(name, fault_config(), named, &FaultyKernels::adamw, change,
                             &Device::adamw);
}
Fault sgd_fault(const std::string& name, const std::vector<std::string>& named,
                const std::function<Sgd(Sgd, const Layout&)>& change) {
  return update_fault<Sgd>(name, plain_sgd(), named, &FaultyKernels::sgd, change, &Device::sgd);
}

/// The definition with eps inside the root.
void adamw_eps_inside(const AdamW& a) {
  const double c1 = 1.0 - std::pow(a.beta1, static_cast<double>(a.update));
  const double c2 = 1.0 - std::pow(a.beta2, static_cast<double>(a.update));
  for (std::int64_t i = 0; i < a.master.numel(); ++i) {
    const double g = a.grad.as<float>()[i] * a.grad_scale;
    float& m = a.m.as<float>()[i];
    float& v = a.v.as<float>()[i];
    m = static_cast<float>(a.beta1 * m + (1.0 - a.beta1) * g);
    v = static_cast<float>(a.beta2 * v + (1.0 - a.beta2) * g * g);
    float& w = a.master.as<float>()[i];
    w = static_cast<float>(w - a.lr * (m / c1 / std::sqrt(v / c2 + a.eps) + a.weight_decay * w));
  }
}

/// Matrices come first, then what is replicated.
bool is_matrices(const StateOf& state, const Tensor& gradients) {
  return gradients.data == state()->store.owned().front().range.main_grad.data;
}

}  // namespace

std::vector<Fault> update_faults() {
  std::vector<Fault> faults = {
      adamw_fault("AdamW without bias correction", {"update of all parameters", "bias correction"},
                  [](AdamW args, const Layout&) {
                    args.update += 100000;
                    return args;
                  }),
      adamw_fault("weight decay on biases and norms",
                  {"update of vectors", "biases and norm weights"},
                  [](AdamW args, const Layout&) {
                    args.weight_decay = 0.1;
                    return args;
                  }),
      adamw_fault("no weight decay", {"update of matrices", "weight decay"},
                  [](AdamW args, const Layout&) {
                    args.weight_decay = 0.0;
                    return args;
                  }),
      adamw_fault(
          "the schedule one update behind", {"update of all parameters", "schedule's index"},
          [](AdamW args, const Layout&) {
            args.lr *= static_cast<double>(args.update - 1) / static_cast<double>(args.update);
            return args;
          }),
      adamw_fault("a learning rate off by 1e-5", {"update of all parameters"},
                  [](AdamW args, const Layout&) {
                    args.lr *= 1.0 + 1e-5;
                    return args;
                  }),
      adamw_fault("one data rank's update is another",
                  {"copies of", "the update are the same on every rank"},
                  [](AdamW args, const Layout& layout) {
                    args.lr *= layout.dp_rank() == 1 ? 1.01 : 1.0;
                    return args;
                  }),
      sgd_fault("clipping ignored", {"update of all parameters", "clip factor"},
                [](Sgd args, const Layout&) {
                  args.grad_scale = 1.0;
                  return args;
                }),
      sgd_fault("clipping per rank", {"clip factor"},
                [](Sgd args, const Layout& layout) {
                  args.grad_scale *= layout.tp_rank() == 1 ? 1.25 : 1.0;
                  return args;
                }),
      sgd_fault("momentum lost between steps", {"optimizer's update of a later step", "state"},
                [](Sgd args, const Layout&) {
                  args.momentum = 0.0;
                  return args;
                })};
  faults.push_back({.name = "eps inside AdamW's root",
                    .config = fault_config(),
                    .named = {"update of all parameters", "eps outside the root"},
                    .kernels = [](const Layout&, const StateOf&) {
                      FaultyKernels kernels;
                      kernels.adamw = [](Device&, Stream&, const AdamW& args) {
                        adamw_eps_inside(args);
                      };
                      return kernels;
                    }});
  faults.push_back(
      {.name = "replicated parameters counted tp times in the norm",
       .config = fault_config(),
       .named = {"global norm", "replicated ones on one tensor-parallel rank"},
       .kernels = [](const Layout& layout, const StateOf& state) {
         FaultyKernels kernels;
         kernels.sum_of_squares = [=](Device& real, Stream& stream, const SumOfSquares& args) {
           real.sum_of_squares(stream, args);
           if (layout.tp_rank() != 0 && is_matrices(state, args.x)) {
             real.sum_of_squares(stream, {.x = state()->store.owned()[1].range.main_grad,
                                          .out = args.out,
                                          .write = Write::kAccumulate});
           }
         };
         return kernels;
       }});
  faults.push_back({.name = "vectors left out of the norm",
                    .config = fault_config(),
                    .named = {"global norm"},
                    .kernels = [](const Layout&, const StateOf& state) {
                      FaultyKernels kernels;
                      kernels.sum_of_squares = [=](Device& real, Stream& stream,
                                                   const SumOfSquares& args) {
                        if (is_matrices(state, args.x)) {
                          real.sum_of_squares(stream, args);
                        }
                      };
                      return kernels;
                    }});
  return faults;
}

}  // namespace tandem::test
