#include "tools/verify/exact_device.h"

#include <algorithm>
#include <cmath>

#include "tools/verify/forwarding_device.h"
#include "tools/verify/host_values.h"

namespace tandem::verify {

namespace {

using Values = std::vector<double>;

/// The loss of a row is max over v of logit + sum over v of coefficient(target, v) * logit.
double coefficient(std::int64_t target, std::int64_t v, bool absolute) {
  const auto c = static_cast<double>((3 * target + 5 * v + target * v) % 3 - 1);
  return absolute ? std::abs(c) : c;
}

/// Computes on the host, in double, what it replaces: the numbers are integers, and no result
/// depends on where or in which order they were summed.
class ExactDevice final : public ForwardingDevice {
 public:
  ExactDevice(Device& inner, bool absolute) : ForwardingDevice(inner), absolute_(absolute) {}

  void activation_forward(Stream& stream, const ActivationForward& args) override {
    if (args.kind != Activation::kSwiglu) {
      return inner().activation_forward(stream, args);
    }
    const Values pre = read(stream, args.pre);
    const auto n = static_cast<std::size_t>(args.out.dim(1));
    Values out(static_cast<std::size_t>(args.out.numel()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t gate = i / n * 2 * n + i % n;
      out[i] = std::max(pre[gate], 0.0) * pre[gate + n];
    }
    write(stream, args.out, out);
  }
  void activation_backward(Stream& stream, const ActivationBackward& args) override {
    if (args.kind != Activation::kSwiglu) {
      return inner().activation_backward(stream, args);
    }
    const Values pre = read(stream, args.pre);
    const Values d_out = read(stream, args.d_out);
    const auto n = static_cast<std::size_t>(args.d_out.dim(1));
    Values d_pre(pre.size());
    for (std::size_t i = 0; i < d_out.size(); ++i) {
      const std::size_t gate = i / n * 2 * n + i % n;
      d_pre[gate] = pre[gate] > 0.0 ? d_out[i] * pre[gate + n] : 0.0;
      d_pre[gate + n] = std::max(pre[gate], 0.0) * d_out[i];
    }
    write(stream, args.d_pre, d_pre);
  }

  void norm_forward(Stream& stream, const NormForward& args) override {
    inner().copy(stream, args.x, args.y);
  }
  void norm_backward(Stream& stream, const NormBackward& args) override {
    const Values d_y = read(stream, args.d_y);
    const Values x = read(stream, args.x);
    Values d_x = args.residual.absent() ? Values(d_y.size(), 0.0) : read(stream, args.residual);
    const auto hidden = static_cast<std::size_t>(args.x.dim(1));
    Values d_weight(hidden, 0.0), d_bias(hidden, 0.0);
    for (std::size_t i = 0; i < d_y.size(); ++i) {
      d_weight[i % hidden] += d_y[i] * x[i];
      d_bias[i % hidden] += d_y[i];
      d_x[i] += d_y[i];
    }
    write(stream, args.d_x, d_x);
    add(stream, args.d_weight, d_weight, args.write);
    if (!args.d_bias.absent()) {
      add(stream, args.d_bias, d_bias, args.write);
    }
  }

  void cross_entropy_sums(Stream& stream, const CrossEntropySums& args) override {
    const Values logits = read(stream, args.logits);
    const Values targets = read(stream, args.targets);
    const std::int64_t columns = args.logits.dim(1);
    Values sums(static_cast<std::size_t>(args.sums.numel()), 0.0);
    for (std::size_t r = 0; r < targets.size(); ++r) {
      sums[2 * r] = args.vocab_start == 0 ? 1.0 : 0.0;  // one rank's, so 1 in all
      for (std::int64_t v = 0; targets[r] >= 0 && v < args.valid_columns; ++v) {
        sums[2 * r + 1] +=
            coefficient(static_cast<std::int64_t>(targets[r]), args.vocab_start + v, absolute_) *
            logits[r * static_cast<std::size_t>(columns) + static_cast<std::size_t>(v)];
      }
    }
    write(stream, args.sums, sums);
  }
  void cross_entropy_backward(Stream& stream, const CrossEntropyBackward& args) override {
    const Values targets = read(stream, args.targets);
    const Values sums = read(stream, args.sums);
    const Values row_max = read(stream, args.row_max);
    const std::int64_t columns = args.logits.dim(1);
    Values d_logits(static_cast<std::size_t>(args.logits.numel()), 0.0);
    double loss = 0.0;
    for (std::size_t r = 0; r < targets.size(); ++r) {
      if (targets[r] < 0) {
        continue;
      }
      loss += sums[2 * r + 1] + row_max[r];
      for (std::int64_t v = 0; v < args.valid_columns; ++v) {
        d_logits[r * static_cast<std::size_t>(columns) + static_cast<std::size_t>(v)] =
            args.scale *
            coefficient(static_cast<std::int64_t>(targets[r]), args.vocab_start + v, absolute_);
      }
    }
    add(stream, args.loss_sum, {loss}, Write::kAccumulate);
    if (!args.d_logits.absent()) {
      write(stream, args.d_logits, d_logits);
    }
  }
  /// loss = sum of (expected as coefficients) * y: the rows' own integers.
  void mean_squared_error(Stream& stream, const MeanSquaredError& args) override {
    const Values y = read(stream, args.y);
    Values d_y = read(stream, args.target);
    double loss = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      loss += d_y[i] * y[i];
      d_y[i] *= args.scale;
    }
    add(stream, args.loss_sum, {loss}, Write::kAccumulate);
    if (!args.d_y.absent()) {
      write(stream, args.d_y, d_y);
    }
  }

 private:
  Values read(Stream& stream, const Tensor& tensor) { return read_values(inner(), stream, tensor); }
  void write(Stream& stream, const Tensor& tensor, const Values& values) {
    write_values(inner(), stream, tensor, values);
  }
  void add(Stream& stream, const Tensor& tensor, Values values, Write how) {
    if (how == Write::kAccumulate) {
      const Values before = read(stream, tensor);
      std::transform(values.begin(), values.end(), before.begin(), values.begin(), std::plus<>());
    }
    write(stream, tensor, values);
  }

  bool absolute_;
};

}  // namespace

std::unique_ptr<Device> make_exact_device(Device& inner, bool absolute) {
  return std::make_unique<ExactDevice>(inner, absolute);
}

}  // namespace tandem::verify
