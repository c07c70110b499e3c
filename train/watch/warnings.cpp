#include "train/watch/warnings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <numeric>

#include "train/watch/non_finite.h"

namespace tandem {

namespace {

/// Ranks are compared after so many steps at a time: a collective less for each other one.
constexpr std::int64_t kCompareEvery = 10;
constexpr std::int64_t kTimes = 5;
static_assert(sizeof(RankTimes) == kTimes * sizeof(double));

/// From this share of a step on it is what a low roof is put down to.
constexpr double kMuch = 0.4;

const char* remedy_for(RankPhase phase) {
  switch (phase) {
    case RankPhase::kData:
      return "its disk or network file system is slow, or its rows take longer to prepare. Put the "
             "data on a local disk of each host";
    case RankPhase::kCompute:
      return "its processor or GPU is slower, hot or throttled, or it has fewer CPUs than the "
             "others. Compare what each host runs on (mpirun --report-bindings, nvidia-smi), or "
             "leave that host out";
    case RankPhase::kCommunication:
      return "collectives of its group move the same bytes more slowly than those of others: a "
             "slow "
             "link, or a group that spans hosts. Measure it (bench collectives), and place "
             "tensor-parallel groups inside a host";
    case RankPhase::kHost:
      return "it is ready to run and has no CPU, or writes metrics and log slowly. Look for other "
             "programs on its CPUs (top), for more threads than CPUs, and put log.dir on a local "
             "disk";
  }
  return "";
}

}  // namespace

RunWarnings::RunWarnings(Session& session, const Config& config, Console& console,
                         RunDirectory* directory, std::int64_t step)
    : rank_(&session.rank()),
      hosts_(&session.hosts()),
      config_(&config),
      console_(&console),
      directory_(directory),
      clock_(*rank_->ledger),
      stragglers_(rank_->layout) {
  const int world = rank_->layout.world();
  const std::vector<RankCpus> cpus = gather_cpus(*rank_->control, rank_->threads);
  for (int rank = 0; rank < world; ++rank) {
    if (hosts_->names[static_cast<std::size_t>(rank)] == hosts_->names[0]) {
      threads_here_ += cpus[static_cast<std::size_t>(rank)].threads;
    }
  }
  // Processes may be bound to CPUs of their own: what is there for all of them is at least this.
  cpus_here_ = session.world().kind() == "mpi" ? static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))
                                               : cpus[0].cpus;
  own_.reserve(kCompareEvery);
  all_.resize(static_cast<std::size_t>(world * kCompareEvery));
  if (rank_->layout.rank != 0) {
    return;
  }
  if (const auto text = cpu_warning(cpus)) {
    warn(step, "cpus", *text);
  }
  if (const auto text = host_warning(*hosts_, rank_->layout)) {
    warn(step, "hosts", *text);
  }
}

void RunWarnings::end_step(const StepResult& step, const StepSpeed& speed,
                           const TrainState& state) {
  own_.push_back(clock_.stop(step));
  if (std::ssize(own_) == kCompareEvery) {
    if (rank_->layout.world() > 1) {
      compare_ranks(step);
    }
    own_.clear();
  }
  look_at_values(step, state);
  if (rank_->layout.rank == 0 && step.outcome == StepOutcome::kUpdated) {
    look_at_speed(step, speed);
  }
}

void RunWarnings::compare_ranks(const StepResult& step) {
  const auto world = static_cast<std::size_t>(rank_->layout.world());
  rank_->control
      ->all_gather(
          Tensor(own_.data(), DType::kF64, {1, kCompareEvery * kTimes}),
          Tensor(all_.data(), DType::kF64, {std::ssize(hosts_->names), kCompareEvery * kTimes}),
          {.label = "times of the ranks"})
      .wait_host();
  if (rank_->layout.rank != 0) {
    return;
  }
  std::vector<RankTimes> ranks(world);
  for (std::size_t i = 0; i < kCompareEvery; ++i) {
    for (std::size_t rank = 0; rank < world; ++rank) {
      ranks[rank] = all_[rank * kCompareEvery + i];
    }
    for (const Straggler& straggler : stragglers_.step(ranks)) {
      warn(step.step - kCompareEvery + 1 + static_cast<std::int64_t>(i), "straggler",
           text_of(straggler));
    }
  }
}

void RunWarnings::look_at_values(const StepResult& step, const TrainState& state) {
  // Overflow in fp16 is how its loss scale is found.
  if (step.outcome == StepOutcome::kNonFinite && !told_non_finite_) {
    told_non_finite_ = true;
    std::vector<std::string> names;
    for (const Parameter& parameter : state.store.parameters()) {
      names.push_back(parameter.name());
    }
    const std::vector<NonFiniteValues> ranks = find_non_finite(*rank_, state);
    if (rank_->layout.rank == 0) {
      warn(step.step, "non_finite",
           fmt::format("{}. The step is skipped; {} in a row end the run (train.max_skipped)",
                       describe_non_finite(ranks, rank_->layout, names,
                                           step.consumed_samples - config_->train.global_batch,
                                           step.consumed_samples - 1),
                       config_->train.max_skipped));
    }
  }
  if (step.outcome != StepOutcome::kUpdated) {
    return;
  }
  const auto spike = losses_.step(step.loss);
  if (spike && !told_spike_) {
    told_spike_ = true;
    if (rank_->layout.rank == 0) {
      warn(step.step, "loss_spike",
           fmt::format(
               "the loss is {:.4f}, {:.0f} standard deviations above {:.4f}, its mean over "
               "the {} steps before; the gradient norm is {:.3g}. Either these rows are odd "
               "(samples {} to {} of the data), and the loss comes back by itself, or the "
               "learning rate is too high: lower optim.lr, raise "
               "optim.schedule.warmup_steps or lower train.clip_grad_norm",
               spike->loss, (spike->loss - spike->mean) / spike->deviation, spike->mean,
               spike->steps, step.grad_norm, step.consumed_samples - config_->train.global_batch,
               step.consumed_samples - 1));
    }
  }
}

void RunWarnings::look_at_speed(const StepResult& step, const StepSpeed& speed) {
  const auto low = roof_.step({.fraction = speed.roof_fraction,
                               .exposed = speed.comm_exposed_ms * 1e-3 / step.seconds,
                               .data = step.data_seconds / step.seconds});
  if (low && !told_roof_) {
    told_roof_ = true;
    warn(step.step, "low_roof", text_of(*low, step));
  }
}

std::string RunWarnings::text_of(const Straggler& straggler) const {
  std::string who = fmt::format("rank{} {}", straggler.ranks.size() == 1 ? "" : "s",
                                fmt::join(straggler.ranks, ", "));
  if (hosts_->of(rank_->layout.world_group()).size() > 1) {
    who += fmt::format(" (on {})", fmt::join(hosts_->of(straggler.ranks), ", "));
  }
  const bool one = straggler.ranks.size() == 1;
  return fmt::format(
      "{} {} been slower than the median rank for {} steps in a row, by {:.1f} ms on top of {:.1f} "
      "ms a step, and all others wait. {:.1f} ms of it are in {}: {}",
      who, one ? "has" : "have", kStepsInARow, straggler.excess * 1e3, straggler.median * 1e3,
      straggler.phase_excess * 1e3, name_of(straggler.phase), remedy_for(straggler.phase));
}

std::string RunWarnings::text_of(const RoofUse& use, const StepResult& step) const {
  std::string why;
  if (rank_->device->host_memory() && threads_here_ > cpus_here_) {
    why = fmt::format(
        "{} threads of this host's ranks share {} CPU{}: start fewer ranks, or lower "
        "threads",
        threads_here_, cpus_here_, cpus_here_ == 1 ? "" : "s");
  } else if (use.data > kMuch) {
    why =
        "reading the data is what it waits for: put it on a local disk, or write it as tokens "
        "once (tokens)";
  } else if (use.exposed > kMuch) {
    why =
        "communication is what it waits for: lower parallel.tp, raise train.micro_batch, or "
        "accumulate more micro-batches in a step (train.global_batch)";
  } else {
    why = fmt::format(
        "matrices are small, {} rows by hidden {} and ffn {}: raise train.micro_batch, or lower "
        "parallel.tp",
        step.rows / std::max<std::int64_t>(1, config_->accumulation()), config_->model.hidden,
        config_->model.ffn / rank_->layout.tp);
  }
  return fmt::format(
      "for {} steps in a row below {:.0f} % of the matmul roof, at {:.1f} % on average. Rank 0 "
      "spent "
      "{:.0f} % of the time in collectives and {:.0f} % fetching data. Likely {}",
      kStepsInARow, 100.0 * LowRoofDetector::kLow, 100.0 * use.fraction, 100.0 * use.exposed,
      100.0 * use.data, why);
}

void RunWarnings::warn(std::int64_t step, const char* kind, const std::string& text) {
  console_->clear_bar();
  rank_->log->warn(step > 0 ? fmt::format("step {}: {}", step, text) : text);
  if (directory_ != nullptr) {
    directory_->write({.step = step, .kind = kind, .text = text});
  }
}

}  // namespace tandem
