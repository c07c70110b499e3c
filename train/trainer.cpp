#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>

#include "core/host_memory.h"
#include "optim/gradient_norm.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "train/stop_signal.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// While the device computes one micro-batch, the next waits in another, and a third is filled.
constexpr std::int64_t kMostSlots = 3;

std::int64_t slots_of(const Config& config) { return std::min(config.accumulation(), kMostSlots); }

}  // namespace

std::size_t Trainer::pinned_bytes(const Device& device, const Config& config, DType storage) {
  if (device.host_memory() || config.model.kind != ModelKind::kFfn) {
    return 0;
  }
  return static_cast<std::size_t>(2 * slots_of(config) * max_rows(config) * config.model.hidden) *
         size_of(storage);
}

Trainer::Trainer(RankContext& rank, const Config& config, TrainState& state, DataSource& source)
    : rank_(&rank),
      config_(&config),
      state_(&state),
      source_(&source),
      reducer_(rank, state.store),
      weights_(rank, state.store),
      loss_scale_(scales_loss() ? kFirstLossScale : LossScale{}) {
  state.store.initialize(*rank.device, *rank.compute, config.seed, rank.threads);
  if (!rank.device->host_memory() && !state.input.input.absent()) {
    // Now: in a step it might wait for the kernels of other ranks, and they for this rank.
    for (std::int64_t i = 0; i < slots_of(config); ++i) {
      Slot& slot = slots_.emplace_back(*rank.device);
      slot.input.reserve(state.input.input);
      slot.expected.reserve(state.input.expected);
    }
  }
}

void Trainer::restore(const Progress& progress) {
  step_ = progress.step;
  consumed_samples_ = progress.consumed_samples;
  skipped_steps_ = progress.skipped_steps;
  non_finite_in_a_row_ = progress.non_finite_in_a_row;
  if (scales_loss() && progress.loss_scale) {
    loss_scale_ = *progress.loss_scale;  // a run of another precision has none to go on with
  }
}

Progress Trainer::progress() const {
  Progress progress{step_, consumed_samples_, skipped_steps_, non_finite_in_a_row_, {}};
  if (scales_loss()) {
    progress.loss_scale = loss_scale_;
  }
  return progress;
}

template <typename Work>
auto Trainer::or_cancel(Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    rank_->tensor_parallel->cancel(error.what(), exit_code_of(error));
    rank_->data_parallel->cancel(error.what(), exit_code_of(error));
    throw;
  }
}

StepResult Trainer::step(int signal) {
  return or_cancel([&] { return run_step(signal); });
}

EvaluationResult Trainer::evaluate(const std::function<int()>& signal) {
  return or_cancel([&] { return run_evaluation(signal); });
}

StepResult Trainer::run_step(int signal) {
  const ProfileRange range(rank_->profiler, {"step", {}, step_ + 1, "step"});
  const auto start = Clock::now();
  StepResult result;
  result.step = ++step_;
  if (rank_->recorder != nullptr) {
    rank_->recorder->set_step(step_);
  }
  const auto batches = [&] {
    const ProfileRange fetch(rank_->profiler, "fetch");
    return source_->fetch_step(consumed_samples_);
  }();
  consumed_samples_ += config_->train.global_batch;
  result.consumed_samples = consumed_samples_;
  result.data_seconds = seconds_since(start);

  std::int64_t own_tokens = 0;
  for (const MicroBatch& batch : batches) {
    own_tokens += batch.tokens;
    result.rows += batch.rows;
  }
  const Agreement agreed = agree(own_tokens, signal);
  result.tokens = agreed.tokens;
  result.stop_signal = agreed.signal;
  // Updates count from 1 and only steps that change the weights count.
  const std::int64_t update = step_ - skipped_steps_;
  result.lr = learning_rate(config_->optim.schedule, config_->optim.lr, update);
  if (result.tokens == 0) {
    result = skip(result, StepOutcome::kNoTokens);
    result.seconds = seconds_since(start);
    return result;
  }

  result.loss_scale = loss_scale_.value;
  backward_over_data(batches, result.loss_scale / static_cast<double>(result.tokens));
  finish_gradients();
  const auto [loss_sum, squared_norm] = reduce_scalars();
  result.loss = loss_sum / static_cast<double>(result.tokens);
  result.grad_norm = std::sqrt(squared_norm) / result.loss_scale;
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    result = skip_non_finite(result);
  } else {
    non_finite_in_a_row_ = 0;
    if (scales_loss()) {
      loss_scale_ = after_clean_step(loss_scale_);
    }
    const ProfileRange update_range(rank_->profiler, "optimizer");
    update_parameters(*rank_->device, *rank_->compute, state_->store, optimizer_options(*config_),
                      {.lr = result.lr,
                       .grad_scale = clip_factor(result.grad_norm, config_->train.clip_grad_norm) /
                                     result.loss_scale,
                       .update = update});
    weights_.start();
    rank_->compute->synchronize();
  }
  result.skipped_steps = skipped_steps_;
  result.seconds = seconds_since(start);
  return result;
}

StepResult Trainer::skip(StepResult result, StepOutcome outcome) {
  result.outcome = outcome;
  result.skipped_steps = ++skipped_steps_;
  return result;
}

StepResult Trainer::skip_non_finite(StepResult result) {
  const LossScale lower = after_overflow(loss_scale_);
  const bool at_floor = lower.value == loss_scale_.value;
  loss_scale_ = lower;
  result = skip(result, at_floor ? StepOutcome::kNonFinite : StepOutcome::kOverflow);
  // While the scale is still coming down, the model is not at fault.
  result.non_finite_in_a_row = at_floor ? ++non_finite_in_a_row_ : non_finite_in_a_row_;
  return result;
}

Trainer::Agreement Trainer::agree(std::int64_t own_tokens, int signal) {
  std::array<std::int64_t, 1 + kStopSignals.size()> values{};
  if (rank_->layout.tp_rank() == 0) {  // the ranks of a tensor-parallel group hold the same rows
    values[0] = own_tokens;
  }
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    values[1 + i] = signal == kStopSignals[i] ? 1 : 0;
  }
  rank_->control
      ->all_reduce(Tensor::of<std::int64_t>(values, {std::ssize(values)}), {.label = "token count"})
      .wait_host();
  Agreement agreement{.tokens = values[0]};
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    if (values[1 + i] > 0 && agreement.signal == 0) {
      agreement.signal = kStopSignals[i];
    }
  }
  return agreement;
}

Pass Trainer::upload(const MicroBatch& batch) {
  const ProfileRange range(rank_->profiler, {"upload", {}, batch.rows});
  Device& device = *rank_->device;
  const auto copy = [&](const Tensor& from, const Tensor& buffer) {
    if (buffer.absent()) {
      return buffer;
    }
    const Tensor to = buffer.first(batch.rows);
    device.copy(*rank_->compute, from, to);
    return to;
  };
  Slot* const slot = slots_.empty() ? nullptr : &slots_[next_slot_++ % slots_.size()];
  const auto pinned = [&](const Tensor& from, StagingBuffer Slot::*buffer) {
    if (slot == nullptr || from.absent()) {
      return from;
    }
    const Tensor staged = (slot->*buffer).reserve(from).reshape(from.shape);
    copy_host(from, staged);
    return staged;
  };
  if (slot != nullptr) {
    slot->fetched->synchronize();
  }
  current_ = {.ids = copy(batch.ids, state_->input.ids),
              .targets = copy(batch.targets, state_->input.targets),
              .input = copy(pinned(batch.input, &Slot::input), state_->input.input),
              .expected = copy(pinned(batch.expected, &Slot::expected), state_->input.expected),
              .tokens = batch.tokens};
  if (slot != nullptr) {
    rank_->compute->record(*slot->fetched);
  }
  return {.rank = rank_,
          .rows = batch.rows,
          .row_keys = copy(batch.row_keys, state_->row_keys),
          .weights = &weights_};
}

void Trainer::backward_over_data(std::span<const MicroBatch> batches, double scale) {
  rank_->device->fill_zero(*rank_->compute, state_->loss_sum);
  for (std::size_t m = 0; m < batches.size(); ++m) {
    const ProfileRange range(rank_->profiler, {"micro-batch", {}, batches[m].tokens, "tokens"});
    Pass pass = upload(batches[m]);
    pass.dropout = {.p = config_->model.dropout,
                    .seed = config_->seed,
                    .update = static_cast<std::uint32_t>(step_ - skipped_steps_)};
    pass.write = m == 0 ? Write::kOverwrite : Write::kAccumulate;
    pass.reducer = &reducer_;
    std::optional<GradientReducer::NoSync> no_sync;
    if (m + 1 < batches.size()) {
      no_sync.emplace(reducer_);
    }
    state_->network.forward(pass, current_, scale, state_->loss_sum);
    state_->network.backward(pass);
  }
}

void Trainer::finish_gradients() {
  const ProfileRange range(rank_->profiler, "finish gradients");
  reducer_.finish();
  if (config_->parallel.sequence_parallel) {
    // Norm weights and row-parallel biases met token shards: their gradients are partial sums.
    for (const OwnedRange& owned : state_->store.owned()) {
      if (owned.replicated) {
        rank_->tensor_parallel
            ->all_reduce(owned.range.main_grad,
                         {.after = rank_->compute, .label = "sequence-parallel gradients"})
            .wait(*rank_->compute);
      }
    }
  }
  owned_sum_of_squares(*rank_, state_->store, state_->sum_of_squares);
}

std::array<double, 2> Trainer::reduce_scalars() {
  const ProfileRange range(rank_->profiler, "loss and gradient norm");
  std::array<double, 2> values = read_scalars();
  if (rank_->layout.tp_rank() != 0 && !state_->network.loss_is_partial()) {
    values[0] = 0.0;  // the same sum as on the group's first rank
  }
  if (rank_->layout.dp_rank() != 0 && !state_->store.options().sharded) {
    values[1] = 0.0;  // data ranks own the same, summed gradients
  }
  rank_->control->all_reduce(Tensor::of<double>(values, {2}), {.label = "loss and gradient norm"})
      .wait_host();
  return values;
}

std::array<double, 2> Trainer::read_scalars() {
  rank_->tensor_parallel->compare_calls();
  rank_->data_parallel->compare_calls();
  settle();  // before the copy is queued: when a lost peer is told of, nothing may write `values`
  std::array<double, 2> values{};
  rank_->device->copy(*rank_->compute, state_->scalars, Tensor::of<double>(values, {2}));
  rank_->compute->synchronize();
  return values;
}

void Trainer::finish_queued() {
  settle();
  rank_->compute->synchronize();
}

void Trainer::settle() {
  rank_->tensor_parallel->settle();
  rank_->data_parallel->settle();
}

EvaluationResult Trainer::run_evaluation(const std::function<int()>& signal) {
  const ProfileRange range(rank_->profiler, "evaluate");
  rank_->device->fill_zero(*rank_->compute, state_->loss_sum);
  EvaluationResult result;
  for (std::int64_t i = 0; i < source_->evaluation_batches() && result.stop_signal == 0; ++i) {
    const MicroBatch& batch = source_->fetch_evaluation(i);
    const Agreement agreed = agree(batch.tokens, signal());
    result.tokens += agreed.tokens;
    result.stop_signal = agreed.signal;
    const Pass pass = upload(batch);
    state_->network.forward(pass, current_, 0.0, state_->loss_sum);
    finish_queued();  // the source reuses its host buffers
  }
  double loss_sum = read_scalars()[0];
  if (rank_->layout.tp_rank() != 0 && !state_->network.loss_is_partial()) {
    loss_sum = 0.0;
  }
  rank_->control->all_reduce(Tensor(&loss_sum, DType::kF64, {1}), {.label = "evaluation"})
      .wait_host();
  result.loss = loss_sum / static_cast<double>(result.tokens);
  return result;
}

}  // namespace tandem
