// How fast a run is: each step held against the matmul roof of the machines it runs on.
#pragma once

#include <cstdint>
#include <optional>

#include "parallel/ledger.h"
#include "train/session.h"
#include "train/trainer.h"

namespace tandem {

/// Of GPUs whose maker's data sheet is known.
struct Utilization {
  double mfu = 0.0;          ///< model FLOP/s over the data sheet's dense peak
  double peak_tflops = 0.0;  ///< of one GPU
};

/// Speed of a step.
struct StepSpeed {
  double tokens_per_s = 0.0;  ///< whole job
  double tflops_per_rank = 0.0;
  double roof_fraction = 0.0;
  /// This rank's collectives in the step, as its ledger has them.
  std::uint64_t comm_calls = 0, comm_bytes = 0;
  double comm_ms = 0.0;
  /// Time inside collectives and their waits; on GPUs, the time its GPU waited.
  double comm_exposed_ms = 0.0;
  std::optional<Utilization> utilization;
};

/// What a ledger counted up to now.
struct LedgerTotals {
  explicit LedgerTotals(const Ledger& ledger)
      : calls(ledger.calls()),
        bytes(ledger.bytes()),
        seconds(ledger.seconds()),
        exposed_seconds(ledger.exposed_seconds()) {}
  std::uint64_t calls, bytes;
  double seconds, exposed_seconds;
};

class RunSpeed {
 public:
  /// Model FLOPs: 6 * matmul parameters.
  explicit RunSpeed(double flops_per_token) : flops_per_token_(flops_per_token) {}

  /// Collective over all ranks: the sum of the roofs of all hosts, each measured by its first rank,
  /// or of all GPUs.
  void measure_roof(Session& session);
  /// `before`: the totals of the rank's ledger when the step began.
  StepSpeed of(const RankContext& rank, const StepResult& step, const LedgerTotals& before) const;

  double flops_per_token() const { return flops_per_token_; }
  double roof() const { return roof_; }  ///< FLOP/s of the whole job; 0 before it is measured
  double gpus() const { return gpus_; }  ///< 0: on CPUs

 private:
  double flops_per_token_;
  double roof_ = 0.0;
  double gpus_ = 0.0;
  std::optional<double> peak_;  ///< TFLOP/s of a GPU's data sheet
};

}  // namespace tandem
