// Layer norm (Ba et al. 2016) and RMS norm (Zhang & Sennrich 2019).
#include <algorithm>
#include <cmath>

#include "core/parallel_for.h"
#include "core/reference/elements.h"
#include "core/reference/kernels.h"

namespace tandem::reference {
namespace {

double mean_of(const NormBackward& args, std::int64_t row) {
  return args.kind == NormKind::kLayerNorm ? load(args.mean, row) : 0.0;
}

double normalised(const NormBackward& args, std::int64_t row, std::int64_t column) {
  return (load(args.x, row * args.x.dim(1) + column) - mean_of(args, row)) * load(args.rstd, row);
}

/// With x^ = (x - mean) * rstd and g = d_y * weight:
/// d_x = rstd * (g - mean(g) - x^ * mean(g * x^)); RMS norm has no mean(g).
void input_gradient(const NormBackward& args, std::int64_t row) {
  const std::int64_t hidden = args.x.dim(1);
  const auto g = [&](std::int64_t c) {
    return load(args.d_y, row * hidden + c) * load(args.weight, c);
  };
  double g_sum = 0.0, gx_sum = 0.0;
  for (std::int64_t c = 0; c < hidden; ++c) {
    g_sum += g(c);
    gx_sum += g(c) * normalised(args, row, c);
  }
  const auto n = static_cast<double>(hidden);
  const double g_mean = args.kind == NormKind::kLayerNorm ? g_sum / n : 0.0;
  for (std::int64_t c = 0; c < hidden; ++c) {
    const std::int64_t i = row * hidden + c;
    const double residual = args.residual.absent() ? 0.0 : load(args.residual, i);
    const double d_x =
        load(args.rstd, row) * (g(c) - g_mean - normalised(args, row, c) * (gx_sum / n));
    store(args.d_x, i, residual + d_x);
  }
}

void write_sum(const Tensor& out, std::int64_t i, double sum, Write write) {
  store(out, i, write == Write::kAccumulate ? load(out, i) + sum : sum);
}

}  // namespace

void norm_forward(const NormForward& args, int threads) {
  const std::int64_t hidden = args.x.dim(1);
  const auto n = static_cast<double>(hidden);
  parallel_for(threads, args.x.dim(0), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      double mean = 0.0;
      if (args.kind == NormKind::kLayerNorm) {
        for (std::int64_t c = 0; c < hidden; ++c) {
          mean += load(args.x, r * hidden + c) / n;
        }
        store(args.mean, r, mean);
      }
      double variance = 0.0;
      for (std::int64_t c = 0; c < hidden; ++c) {
        const double centred = load(args.x, r * hidden + c) - mean;
        variance += centred * centred / n;
      }
      const double rstd = 1.0 / std::sqrt(variance + args.eps);
      store(args.rstd, r, rstd);
      for (std::int64_t c = 0; c < hidden; ++c) {
        const double bias = args.bias.absent() ? 0.0 : load(args.bias, c);
        const double centred = load(args.x, r * hidden + c) - mean;
        store(args.y, r * hidden + c, centred * rstd * load(args.weight, c) + bias);
      }
    }
  });
}

void norm_backward(const NormBackward& args, int threads, HostScratch& scratch) {
  const std::int64_t rows = args.x.dim(0), hidden = args.x.dim(1);
  double* weight_sum = scratch.reserve<double>(static_cast<std::size_t>(2 * hidden));
  double* bias_sum = weight_sum + hidden;
  std::fill_n(weight_sum, 2 * hidden, 0.0);
  parallel_for(threads, hidden, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = begin; c < end; ++c) {
        const double d_y = load(args.d_y, r * hidden + c);
        weight_sum[c] += d_y * normalised(args, r, c);
        bias_sum[c] += d_y;
      }
    }
    for (std::int64_t c = begin; c < end; ++c) {
      write_sum(args.d_weight, c, weight_sum[c], args.write);
      if (!args.d_bias.absent()) {
        write_sum(args.d_bias, c, bias_sum[c], args.write);
      }
    }
  });
  parallel_for(threads, rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      input_gradient(args, r);
    }
  });
}

}  // namespace tandem::reference
