#include <cmath>
#include <limits>

#include "core/parallel_for.h"
#include "core/reference/elements.h"
#include "core/reference/kernels.h"

namespace tandem::reference {

void cross_entropy_max(const CrossEntropyMax& args, int threads) {
  const std::int64_t columns = args.logits.dim(1);
  parallel_for(threads, args.logits.dim(0), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      double max = -std::numeric_limits<double>::infinity();
      for (std::int64_t c = 0; c < args.valid_columns; ++c) {
        const double logit = load(args.logits, r * columns + c);
        max = logit > max || std::isnan(logit) ? logit : max;
      }
      store(args.row_max, r, max);
    }
  });
}

void cross_entropy_sums(const CrossEntropySums& args, int threads) {
  const std::int64_t columns = args.logits.dim(1);
  parallel_for(threads, args.logits.dim(0), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const double max = load(args.row_max, r);
      double sum = 0.0;
      for (std::int64_t c = 0; c < args.valid_columns; ++c) {
        sum += std::exp(load(args.logits, r * columns + c) - max);
      }
      const std::int64_t target = args.targets.as<std::int32_t>()[r];
      const std::int64_t local = target - args.vocab_start;
      const bool here = target >= 0 && local >= 0 && local < args.valid_columns;
      store(args.sums, 2 * r, sum);
      store(args.sums, 2 * r + 1, here ? load(args.logits, r * columns + local) - max : 0.0);
    }
  });
}

void cross_entropy_backward(const CrossEntropyBackward& args, int threads) {
  const std::int64_t rows = args.logits.dim(0), columns = args.logits.dim(1);
  const std::int32_t* targets = args.targets.as<std::int32_t>();
  double loss = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (targets[r] >= 0) {
      loss += std::log(load(args.sums, 2 * r)) - load(args.sums, 2 * r + 1);
    }
  }
  *args.loss_sum.as<double>() += loss;
  if (args.d_logits.absent()) {
    return;
  }
  parallel_for(threads, rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const double max = load(args.row_max, r), sum = load(args.sums, 2 * r);
      for (std::int64_t c = 0; c < columns; ++c) {
        double gradient = 0.0;
        if (targets[r] >= 0 && c < args.valid_columns) {
          const double onehot = targets[r] == args.vocab_start + c ? 1.0 : 0.0;
          const double softmax = std::exp(load(args.logits, r * columns + c) - max) / sum;
          gradient = args.scale * (softmax - onehot);
        }
        store(args.d_logits, r * columns + c, gradient);
      }
    }
  });
}

void mean_squared_error(const MeanSquaredError& args, int threads) {
  const std::int64_t rows = args.y.dim(0), hidden = args.y.dim(1);
  const auto n = static_cast<double>(hidden);
  double loss = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) {
    double row_sum = 0.0;
    for (std::int64_t i = r * hidden; i < (r + 1) * hidden; ++i) {
      const double error = load(args.y, i) - load(args.target, i);
      row_sum += error * error;
    }
    loss += hidden == 0 ? 0.0 : row_sum / n;
  }
  *args.loss_sum.as<double>() += loss;
  if (args.d_y.absent()) {
    return;
  }
  parallel_for(threads, rows * hidden, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      store(args.d_y, i, args.scale * 2.0 / n * (load(args.y, i) - load(args.target, i)));
    }
  });
}

}  // namespace tandem::reference
