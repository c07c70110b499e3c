// What a rank computes in a micro-batch and in an update: one entry per profiler range
// (docs/profiling.md), with its floating-point operations and the bytes that it moves. From config
// and layout alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "parallel/layout.h"
#include "train/config.h"
#include "train/plan/matmul_rates.h"

namespace tandem {

/// Work of one call of a range. `range` is the name that profilers show, a literal. `kernel`, also
/// a literal, is set where a range of one name may run different kernels, each with its own cost.
struct RangeWork {
  std::string_view range;
  double flops = 0.0;  ///< of matmuls
  double bytes = 0.0;  ///< read and written, each tensor once
  std::optional<MatmulSize> matmul = {};
  double beside_bytes = 0.0;  ///< of `bytes`, those that the matmul itself does not move
  std::string_view kernel = {};

  /// What its cost goes by in a machine's file.
  std::string_view name() const { return kernel.empty() ? range : kernel; }
};

/// Sizes of a rank's part of a micro-batch.
class RankWork {
 public:
  /// `rows`: of the micro-batch, padding included. `gpu`: whose matmuls make gelu and its gradient
  /// on the way, so that these are no ranges of their own.
  RankWork(const Config& config, const Layout& layout, const Precision& precision, double rows,
           bool gpu);

  /// Those of a micro-batch in which there is something to do, in no order.
  std::vector<RangeWork> all() const;

  // A block, in the order in which forward and backward run.
  RangeWork norm() const;
  RangeWork fc1() const;
  RangeWork activation() const;  ///< no bytes where fc1's matmul makes it
  RangeWork fc2() const;
  RangeWork residual() const;
  RangeWork dropout_backward() const;  ///< no bytes without dropout
  RangeWork fc2_dgrad() const;
  RangeWork activation_backward() const;  ///< no bytes where fc2's matmul makes it
  RangeWork fc1_dgrad() const;
  RangeWork fc2_wgrad() const;
  RangeWork fc1_wgrad() const;
  RangeWork norm_backward() const;
  // The ends: of a language model, or the loss of a bare stack.
  RangeWork fetch() const;  ///< the share of one micro-batch, on the host
  RangeWork upload() const;
  RangeWork embed() const;
  RangeWork embed_backward() const;
  RangeWork head() const;
  RangeWork cross_entropy() const;
  RangeWork head_dgrad() const;
  RangeWork head_wgrad() const;
  RangeWork squared_error() const;

 private:
  RangeWork forward(std::string_view range, double out, double in, double more_bytes) const;
  RangeWork dgrad(std::string_view range, double out, double in, double more_bytes) const;
  RangeWork wgrad(std::string_view range, double out, double in, double more_bytes) const;

  double rows_, shard_, hidden_, ffn_, fc1_out_, vocab_, context_, storage_, main_;
  Activation activation_;
  bool dropout_, language_model_, fused_;
};

// Once a step, of the parameters (elements) that a rank owns.
RangeWork gradient_norm_work(const Precision& precision, double parameters);
RangeWork update_work(const Config& config, const Precision& precision, double parameters);

}  // namespace tandem
