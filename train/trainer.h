// One optimizer step after the other. A step: fetch all its micro-batches, agree on its token count
// N, run forward and backward of each with every token's loss divided by N, sum gradients once over
// the data ranks, clip by the global norm, update. Every rank of the layout calls the same methods
// in the same order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "parallel/gradient_reducer.h"
#include "parallel/rank_context.h"
#include "parallel/staged_communicator.h"
#include "parallel/weight_gatherer.h"
#include "train/config.h"
#include "train/data/source.h"
#include "train/progress.h"
#include "train/state.h"

namespace tandem {

enum class StepOutcome {
  kUpdated,
  kNoTokens,   ///< no unmasked target in the whole step: nothing changed, counted as skipped
  kNonFinite,  ///< loss or gradient norm not finite: nothing changed, counted as skipped
  kOverflow,   ///< the same in fp16 at a loss scale above its floor: it is halved
};

/// The same on every rank, to the bit, but for the times and rows.
struct StepResult {
  std::int64_t step = 0;  ///< attempted, from 1
  StepOutcome outcome = StepOutcome::kUpdated;
  double loss = 0.0;       ///< mean over the step's tokens, the value that is optimised
  double grad_norm = 0.0;  ///< before clipping
  double lr = 0.0;
  std::int64_t tokens = 0;  ///< unmasked, whole job
  /// Of this rank's micro-batches, padding included. Not the same on every data rank.
  std::int64_t rows = 0;
  std::int64_t consumed_samples = 0;
  std::int64_t skipped_steps = 0;        ///< in all
  std::int64_t non_finite_in_a_row = 0;  ///< this step and those directly before it
  double loss_scale = 1.0;               ///< of this step; main gradients are multiplied by it
  int stop_signal = 0;        ///< the signal that some rank received; all stop after this step
  double seconds = 0.0;       ///< this rank's step, data included
  double data_seconds = 0.0;  ///< of which fetching the micro-batches
};

struct EvaluationResult {
  double loss = 0.0;
  std::int64_t tokens = 0;
  int stop_signal = 0;  ///< a signal ended it: loss and tokens are of a part only
};

class Trainer {
 public:
  /// All arguments outlive the trainer; the state's memory is real. Draws the initial weights.
  Trainer(RankContext& rank, const Config& config, TrainState& state, DataSource& source);
  /// Host memory that a trainer on `device` takes beside the source's buffers; `storage`: the type
  /// of its rows.
  static std::size_t pinned_bytes(const Device& device, const Config& config, DType storage);

  /// `signal`: a stop signal that this rank received, 0 for none; it travels with the token count.
  StepResult step(int signal = 0);
  /// Token-weighted mean loss over the whole held-out part. Dropout is off. `signal` is asked
  /// before each batch: where some rank has one, all stop there.
  EvaluationResult evaluate(const std::function<int()>& signal = [] { return 0; });

  std::int64_t steps() const { return step_; }
  Progress progress() const;
  /// What is queued on the compute stream from now on may read every weight: under ZeRO the last
  /// step's are still on their way when it returns.
  void finish_weights() { weights_.wait_all(); }
  /// Goes on from there; weights and moments are the caller's.
  void restore(const Progress& progress);

 private:
  struct Agreement {
    std::int64_t tokens = 0;
    int signal = 0;
  };

  /// Sums this rank's tokens over the data ranks and finds what signal any rank has.
  Agreement agree(std::int64_t own_tokens, int signal);
  Pass upload(const MicroBatch& batch);
  void backward_over_data(std::span<const MicroBatch> batches, double scale);
  void finish_gradients();
  /// Sums {loss, squared gradient norm} over the ranks that hold distinct parts of them.
  std::array<double, 2> reduce_scalars();
  /// {loss sum, sum of squares}, in one copy. Waits for the device.
  std::array<double, 2> read_scalars();
  /// Blocks the host until this rank's collectives are through; throws if a peer is lost.
  void settle();
  /// The same for its kernels, too.
  void finish_queued();
  /// Returns what `work` returns. What leaves it by an exception gives up this rank's collectives:
  /// freeing a device's memory waits for its kernels, and some would wait for a peer for ever.
  template <typename Work>
  auto or_cancel(Work&& work);
  StepResult run_step(int signal);
  EvaluationResult run_evaluation(const std::function<int()>& signal);
  StepResult skip(StepResult result, StepOutcome outcome);
  StepResult skip_non_finite(StepResult result);
  bool scales_loss() const { return rank_->precision.storage == DType::kF16; }

  RankContext* rank_;
  const Config* config_;
  TrainState* state_;
  DataSource* source_;
  GradientReducer reducer_;
  WeightGatherer weights_;
  NetworkInput current_;  ///< the uploaded micro-batch, cut to its rows
  /// Pinned memory for a micro-batch of rows, which the device fetches without holding the host.
  struct Slot {
    explicit Slot(Device& device) : input(device), expected(device), fetched(device.make_event()) {}
    StagingBuffer input, expected;
    std::unique_ptr<Event> fetched;
  };
  std::deque<Slot> slots_;  ///< taken in turn: the host is that many micro-batches ahead at most
  std::size_t next_slot_ = 0;

  std::int64_t step_ = 0;
  std::int64_t consumed_samples_ = 0;
  std::int64_t skipped_steps_ = 0;
  std::int64_t non_finite_in_a_row_ = 0;
  LossScale loss_scale_;
};

}  // namespace tandem
