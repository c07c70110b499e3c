#include "tools/verify/exact_device.h"

#include <algorithm>
#include <cmath>

#include "tools/verify/forwarding_device.h"

namespace tandem::verify {

namespace {

/// The loss of a row is max over v of logit + sum over v of coefficient(target, v) * logit.
float coefficient(std::int64_t target, std::int64_t v, bool absolute) {
  const auto c = static_cast<float>((3 * target + 5 * v + target * v) % 3 - 1);
  return absolute ? std::abs(c) : c;
}

class ExactDevice final : public ForwardingDevice {
 public:
  ExactDevice(Device& cpu, bool absolute) : ForwardingDevice(cpu), absolute_(absolute) {}

  void activation_forward(Stream& stream, const ActivationForward& args) override {
    if (args.kind != Activation::kSwiglu) {
      return inner().activation_forward(stream, args);
    }
    const std::int64_t n = args.out.dim(1);
    for (std::int64_t r = 0; r < args.out.dim(0); ++r) {
      const float* pre = args.pre.as<float>() + r * 2 * n;
      float* out = args.out.as<float>() + r * n;
      for (std::int64_t i = 0; i < n; ++i) {
        out[i] = std::max(pre[i], 0.0f) * pre[n + i];
      }
    }
  }
  void activation_backward(Stream& stream, const ActivationBackward& args) override {
    if (args.kind != Activation::kSwiglu) {
      return inner().activation_backward(stream, args);
    }
    const std::int64_t n = args.d_out.dim(1);
    for (std::int64_t r = 0; r < args.d_out.dim(0); ++r) {
      const float* pre = args.pre.as<float>() + r * 2 * n;
      const float* d_out = args.d_out.as<float>() + r * n;
      float* d_pre = args.d_pre.as<float>() + r * 2 * n;
      for (std::int64_t i = 0; i < n; ++i) {
        const float gate = pre[i];
        const float up = pre[n + i];
        d_pre[i] = gate > 0.0f ? d_out[i] * up : 0.0f;
        d_pre[n + i] = std::max(gate, 0.0f) * d_out[i];
      }
    }
  }

  void norm_forward(Stream& stream, const NormForward& args) override {
    inner().copy(stream, args.x, args.y);
  }
  void norm_backward(Stream&, const NormBackward& args) override {
    const std::int64_t hidden = args.x.dim(1);
    float* d_weight = args.d_weight.as<float>();
    float* d_bias = args.d_bias.absent() ? nullptr : args.d_bias.as<float>();
    if (args.write == Write::kOverwrite) {
      std::fill_n(d_weight, hidden, 0.0f);
      if (d_bias != nullptr) {
        std::fill_n(d_bias, hidden, 0.0f);
      }
    }
    for (std::int64_t i = 0; i < args.x.numel(); ++i) {
      const float d_y = args.d_y.as<float>()[i];
      d_weight[i % hidden] += d_y * args.x.as<float>()[i];
      if (d_bias != nullptr) {
        d_bias[i % hidden] += d_y;
      }
      args.d_x.as<float>()[i] =
          d_y + (args.residual.absent() ? 0.0f : args.residual.as<float>()[i]);
    }
  }

  void cross_entropy_sums(Stream&, const CrossEntropySums& args) override {
    for (std::int64_t r = 0; r < args.logits.dim(0); ++r) {
      const std::int32_t target = args.targets.as<std::int32_t>()[r];
      float sum = 0.0f;
      for (std::int64_t v = 0; target >= 0 && v < args.valid_columns; ++v) {
        sum += coefficient(target, args.vocab_start + v, absolute_) *
               args.logits.as<float>()[r * args.logits.dim(1) + v];
      }
      args.sums.as<float>()[2 * r] =
          args.vocab_start == 0 ? 1.0f : 0.0f;  // one rank's, so 1 in all
      args.sums.as<float>()[2 * r + 1] = sum;
    }
  }
  void cross_entropy_backward(Stream&, const CrossEntropyBackward& args) override {
    const std::int64_t columns = args.logits.dim(1);
    for (std::int64_t r = 0; r < args.logits.dim(0); ++r) {
      const std::int32_t target = args.targets.as<std::int32_t>()[r];
      if (target >= 0) {
        *args.loss_sum.as<double>() += static_cast<double>(args.sums.as<float>()[2 * r + 1]) +
                                       static_cast<double>(args.row_max.as<float>()[r]);
      }
      for (std::int64_t v = 0; !args.d_logits.absent() && v < columns; ++v) {
        const bool counts = target >= 0 && v < args.valid_columns;
        args.d_logits.as<float>()[r * columns + v] =
            counts ? static_cast<float>(args.scale) *
                         coefficient(target, args.vocab_start + v, absolute_)
                   : 0.0f;
      }
    }
  }
  /// loss = sum of (expected as coefficients) * y: the rows' own integers.
  void mean_squared_error(Stream&, const MeanSquaredError& args) override {
    for (std::int64_t i = 0; i < args.y.numel(); ++i) {
      const float c = args.target.as<float>()[i];
      *args.loss_sum.as<double>() += static_cast<double>(c) * args.y.as<float>()[i];
      if (!args.d_y.absent()) {
        args.d_y.as<float>()[i] = static_cast<float>(args.scale) * c;
      }
    }
  }

 private:
  bool absolute_;
};

}  // namespace

std::unique_ptr<Device> make_exact_device(Device& cpu, bool absolute) {
  return std::make_unique<ExactDevice>(cpu, absolute);
}

}  // namespace tandem::verify
