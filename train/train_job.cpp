#include "train/train_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>

#include "core/arena.h"
#include "train/agree.h"
#include "train/checkpoint/resume.h"
#include "train/checkpoint/save.h"
#include "train/console.h"
#include "train/memory.h"
#include "train/plan/line.h"
#include "train/run_directory.h"
#include "train/run_speed.h"
#include "train/startup_table.h"
#include "train/state.h"
#include "train/stop_signal.h"
#include "train/trace.h"
#include "train/trainer.h"
#include "train/watch/warnings.h"

namespace tandem {

namespace {

/// How old traffic.json may be.
constexpr std::chrono::seconds kTrafficEvery{2};

/// Runs a part of step `step`; what it throws then says the step.
template <typename Action>
auto in_step(std::int64_t step, const Action& action) {
  const std::string place = fmt::format("step {}: ", step);
  try {
    return action();
  } catch (const NonFiniteError&) {  // says it itself
    throw;
  } catch (const PeerLost& error) {
    throw PeerLost(place + error.what());
  } catch (const Error& error) {
    throw Error(error.code(), place + error.what());
  } catch (const std::exception& error) {
    throw InternalError(place + error.what());
  }
}

/// Around step `step`: the profiler's capture range begins before the first of `steps` and ends
/// behind the last. A trace, if there is one, is of the same steps, or of all if there are none.
class Capture {
 public:
  Capture(Session& session, TraceRecorder* trace, const std::array<std::int64_t, 2>& steps,
          std::int64_t step)
      : session_(session), ends_(step == steps[1]) {
    if (step == steps[0]) {
      session_.begin_capture();
    }
    const bool all = steps[1] == 0;
    session_.rank().profiler->record(all || (step >= steps[0] && step <= steps[1]) ? trace
                                                                                   : nullptr);
  }
  ~Capture() {
    session_.rank().profiler->record(nullptr);
    if (ends_ && std::uncaught_exceptions() == 0) {
      try {
        session_.end_capture();
      } catch (const Error&) {  // a lost peer is told of at the next collective
      }
    }
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  Session& session_;
  bool ends_;
};

/// While it lives, collectives are booked as those of `phase`.
class InPhase {
 public:
  InPhase(Ledger& ledger, JobPhase phase) : ledger_(ledger) { ledger_.set_phase(phase); }
  ~InPhase() { ledger_.set_phase(JobPhase::kOther); }
  InPhase(const InPhase&) = delete;
  InPhase& operator=(const InPhase&) = delete;

 private:
  Ledger& ledger_;
};

/// One rank's run, from allocation to the last line.
class Run {
 public:
  Run(Session& session, const Config& config, DataSource& source)
      : session_(session),
        rank_(session.rank()),
        config_(config),
        source_(source),
        console_(rank_.layout.rank == 0, config.train.steps, config.log.every) {
    rank_.precision = precision_of(config, rank_.device->kind());
    measured_.emplace();
    const TrainState measured(config_, rank_.layout, rank_.precision, max_rows(config_),
                              *measured_);
    parameters_ = measured.store.global_count();
    for (const Parameter& parameter : measured.store.parameters()) {
      specs_.push_back(parameter.spec());
    }
    beside_ = session_.host_memory(config_, measured.store);
    // The source's own word, whatever it is.
    beside_.data = source_.buffer_bytes() +
                   Trainer::pinned_bytes(*rank_.device, config_, rank_.precision.storage);
    speed_.emplace(6.0 * static_cast<double>(measured.network.matmul_parameters()));
  }

  int dry_run() {
    agree_on_memory();
    if (rank_.layout.rank == 0) {
      Table with_plan = table();
      with_plan.rows.emplace_back(
          "plan", plan_line(config_, rank_.device->kind(), rank_.precision.storage));
      console_.table(with_plan);
    }
    console_.line("dry run: nothing was trained");
    return 0;
  }

  /// The newest checkpoint's weights as one file of whole tensors.
  int export_weights(const std::string& file) {
    const auto checkpoint =
        checkpoint_to_resume(rank_, config_, run_path(config_), optimizer_moments());
    // Ranks wait for a whole model to be written, longer than for any step of training.
    session_.world().set_timeout(3600);
    const std::unique_ptr<Device> host = make_reference_device(1);
    const auto written = session_.world().make_group("export", rank_.layout.world_group(), *host,
                                                     rank_.ledger, nullptr);
    agree(*written, [&] {
      if (!checkpoint) {
        throw DataError(fmt::format(
            "--export: {} has no checkpoint. Train with checkpoint.every above 0, or name one with "
            "--set checkpoint.resume=PATH.",
            run_path(config_).string()));
      }
      if (rank_.layout.rank == 0) {
        tandem::export_weights(*checkpoint, specs_, file);
      }
    });
    console_.line(fmt::format("wrote the weights of step {} ({}) to {}",
                              checkpoint->manifest().progress.step,
                              checkpoint->directory().string(), file));
    return 0;
  }

  /// `import_file`: weights to start from, instead of a checkpoint; empty for none.
  int train(const std::string& import_file) {
    agree_on_memory();
    if (!import_file.empty()) {
      agree(*rank_.control, [&] { check_weights(import_file, specs_); });
    } else {
      checkpoint_ = checkpoint_to_resume(rank_, config_, run_path(config_), optimizer_moments());
    }
    if (checkpoint_ && checkpoint_->manifest().progress.step >= config_.train.steps) {
      console_.line(fmt::format(
          "nothing to do: {} is of step {}, and the last step is {} (train.steps, --steps)",
          checkpoint_->directory().string(), checkpoint_->manifest().progress.step,
          config_.train.steps));
      return 0;
    }
    agree(*rank_.control, [&] {
      if (rank_.layout.rank == 0) {
        directory_.emplace(config_, *rank_.log, resumed_in_place());
      }
    });
    speed_->measure_roof(session_);  // its matrices are gone before the arena comes
    Arena arena(*rank_.device, *measured_);
    TrainState state(config_, rank_.layout, rank_.precision, max_rows(config_), arena);
    Trainer trainer(rank_, config_, state, source_);
    agree(*rank_.control, [&] {
      if (!import_file.empty()) {
        import_weights(import_file, rank_, state.store);
        start_ = "weights of " + import_file;
      } else if (checkpoint_) {
        checkpoint_->load(rank_, state.store);
        trainer.restore(checkpoint_->manifest().progress);
        start_ = fmt::format("goes on behind step {}: {}", trainer.steps(),
                             checkpoint_->directory().string());
      }
    });
    checkpoint_.reset();
    CheckpointSaver saver(rank_, config_, state.store, run_path(config_));
    console_.table(table());
    if (directory_) {
      directory_->write(table(),
                        {*measured_, rank_.device->host_memory() ? beside_ : HostMemory{}});
    }
    if (config_.profile.trace) {
      trace_.emplace();
    }
    RunWarnings warnings(session_, config_, console_, directory_ ? &*directory_ : nullptr,
                         trainer.steps());
    const int signal = told_at_once([&] { return steps(trainer, state, saver, warnings); });
    trainer.finish_weights();
    if (signal != 0 && saver.last_step() != trainer.steps()) {
      saver.save(trainer.progress());
    }
    saver.finish();
    leave_records(trainer);  // last: who sends a signal may not wait for long
    if (signal != 0) {
      const bool same = import_file.empty() && config_.checkpoint.resume == "auto";
      console_.line(fmt::format(
          "stopped by signal {} after step {}; the same command {}goes on from {}", signal,
          trainer.steps(), same ? "" : "with checkpoint.resume: auto and without --import ",
          CheckpointFolder(run_path(config_)).path().string()));
      return 128 + signal;
    }
    last_lines(trainer);
    return 0;
  }

 private:
  void agree_on_memory() {
    agree(*rank_.control, [&] { session_.check_memory(config_, *measured_, beside_); });
  }

  /// A rank that fails by itself says so before its saver waits for the checkpoint that it is
  /// writing: its peers wait for it, and give up after a time.
  template <typename Steps>
  int told_at_once(Steps&& steps) {
    try {
      return steps();
    } catch (const Error& error) {
      if (error.code() == ExitCode::kData || error.code() == ExitCode::kInternal) {
        session_.world().abandon(error.what(), error.code());
      }
      throw;
    }
  }

  void write_traffic(const Trainer& trainer) {
    if (directory_) {
      directory_->write(*rank_.ledger, *rank_.profiler,
                        {.layout = rank_.layout,
                         .first_step = trainer.steps() - trained_steps_ + 1,
                         .last_step = trainer.steps(),
                         .rows = trained_rows_});
      traffic_written_ = std::chrono::steady_clock::now();
    }
  }

  /// What the run was, beside its metrics: traffic.json, and trace.json if it was asked for.
  void leave_records(const Trainer& trainer) {
    write_traffic(trainer);
    if (trace_) {
      if (trace_->full()) {
        rank_.log->warn(fmt::format(
            "trace.json: there is room for {} events of a rank, and later ones were dropped. Write "
            "profile.steps: [first, last] to choose the steps.",
            TraceRecorder::kMostEvents));
      }
      write_trace(rank_, session_.hosts(), *trace_, run_path(config_) / "trace.json");
    }
  }

  int optimizer_moments() const { return tandem::optimizer_moments(optimizer_options(config_)); }

  /// The step this run goes on from, if it does so in its own directory.
  std::optional<std::int64_t> resumed_in_place() const {
    std::error_code there_is_none;
    const bool own = checkpoint_ && std::filesystem::equivalent(
                                        checkpoint_->directory() / "..",
                                        CheckpointFolder(run_path(config_)).path(), there_is_none);
    return own ? std::optional(checkpoint_->manifest().progress.step) : std::nullopt;
  }

  int steps(Trainer& trainer, const TrainState& state, CheckpointSaver& saver,
            RunWarnings& warnings) {
    started_ = std::chrono::steady_clock::now();
    while (trainer.steps() < config_.train.steps) {
      const Capture capture(session_, trace_ ? &*trace_ : nullptr, config_.profile.steps,
                            trainer.steps() + 1);
      const LedgerTotals before(*rank_.ledger);
      warnings.start_step();
      const StepResult result = in_step(trainer.steps() + 1, [&] {
        const InPhase phase(*rank_.ledger, JobPhase::kStep);
        return trainer.step(stop_signal());
      });
      const StepSpeed speed = speed_->of(rank_, result, before);
      ++trained_steps_;
      trained_rows_.micro_batches += config_.accumulation();
      trained_rows_.rows += result.rows;
      trained_seconds_ += result.seconds;
      trained_tokens_ += result.tokens;
      if (result.outcome == StepOutcome::kUpdated) {
        last_loss_ = result.loss;
      }
      if (directory_) {
        directory_->write(result, speed);
      }
      console_.step(result, speed);
      warnings.end_step(result, speed, state);
      check_finite(result, saver);
      saver.poll();
      if (config_.checkpoint.every > 0 &&
          (result.step % config_.checkpoint.every == 0 || result.step == config_.train.steps)) {
        saver.save(trainer.progress());
      }
      // A run that is killed leaves what it had counted.
      if (std::chrono::steady_clock::now() - traffic_written_ > kTrafficEvery) {
        write_traffic(trainer);
      }
      if (result.stop_signal != 0) {
        return result.stop_signal;
      }
      const bool last = result.step == config_.train.steps;
      if (config_.train.eval_every > 0 && source_.evaluation_batches() > 0 &&
          (last || result.step % config_.train.eval_every == 0)) {
        const EvaluationResult evaluation = in_step(result.step, [&] {
          const InPhase phase(*rank_.ledger, JobPhase::kEvaluation);
          return trainer.evaluate(stop_signal);
        });
        if (evaluation.stop_signal != 0) {
          return evaluation.stop_signal;
        }
        evaluation_ = evaluation;
        if (directory_) {
          directory_->write(result.step, *evaluation_);
        }
        console_.evaluation(result.step, *evaluation_);
      }
    }
    return 0;
  }

  /// Throws on every rank after the same step; what is being written is published first.
  void check_finite(const StepResult& result, CheckpointSaver& saver) const {
    if (result.non_finite_in_a_row >= config_.train.max_skipped) {
      saver.finish();
      throw NonFiniteError(fmt::format(
          "step {}: loss or gradient norm is not finite, {} steps in a row (train.max_skipped). "
          "Lower optim.lr, raise optim.schedule.warmup_steps, or check the data.",
          result.step, result.non_finite_in_a_row));
    }
  }

  Table table() const {
    return startup_table(session_, config_,
                         {.memory = &*measured_,
                          .beside = beside_,
                          .parameters = parameters_,
                          .flops_per_token = speed_->flops_per_token(),
                          .roof = speed_->roof(),
                          .gpus = speed_->gpus(),
                          .data = source_.describe(),
                          .start = start_,
                          .directory = directory_ ? directory_->path().string() : ""});
  }

  void last_lines(const Trainer& trainer) {
    const double seconds = std::max(trained_seconds_, 1e-9);
    const double tokens_per_s = static_cast<double>(trained_tokens_) / seconds;
    const double flops = tokens_per_s * speed_->flops_per_token();
    const std::chrono::duration<double> all = std::chrono::steady_clock::now() - started_;
    console_.line("");
    console_.line(fmt::format(
        "trained {} ({} parameters, tp {} x dp {}) for {} step{} on {} tokens in {}{}",
        config_.name, short_number(parameters_), rank_.layout.tp, rank_.layout.dp, trained_steps_,
        trained_steps_ == 1 ? "" : "s", short_number(static_cast<double>(trained_tokens_)),
        duration_text(seconds, all.count()),
        trained_steps_ == trainer.steps() ? "" : fmt::format(", {} in all", trainer.steps())));
    console_.line(fmt::format("speed   {} tokens/s, {:.0f} GFLOP/s, {:.0f} % of the matmul roof",
                              short_number(tokens_per_s), flops / 1e9,
                              100.0 * flops / speed_->roof()));
    if (last_loss_) {
      console_.line(
          fmt::format("loss    {:.4f} at the last step{}", *last_loss_,
                      evaluation_ ? fmt::format(", {:.4f} held out", evaluation_->loss) : ""));
    }
    if (directory_) {
      console_.line(fmt::format("metrics {}/metrics.jsonl", directory_->path().string()));
    }
    if (const auto other = other_layout()) {
      console_.line(
          fmt::format("next    the same model under another layout: --set parallel.tp={} --set "
                      "parallel.dp={}{} gives the same losses to rounding",
                      other->tp, other->dp,
                      // Under the same name it would go on from here.
                      config_.checkpoint.every > 0 ? " --set name=other" : ""));
    }
  }

  /// All ranks on the other axis (of one rank: two), if the sizes of this config divide.
  std::optional<Layout> other_layout() const {
    const int ranks = std::max(2, rank_.layout.world());
    for (const Layout& other : {Layout{1, ranks, 0}, Layout{ranks, 1, 0}}) {
      if ((other.tp != rank_.layout.tp || other.dp != rank_.layout.dp) &&
          config_.model.ffn % other.tp == 0 && config_.data.seq_len % other.tp == 0 &&
          config_.train.global_batch % (config_.train.micro_batch * other.dp) == 0) {
        return other;
      }
    }
    return std::nullopt;
  }

  Session& session_;
  RankContext& rank_;
  const Config& config_;
  DataSource& source_;
  Console console_;
  std::optional<Arena> measured_;
  std::optional<RunDirectory> directory_;
  std::optional<TraceRecorder> trace_;
  std::unique_ptr<Checkpoint> checkpoint_;  ///< until it is loaded
  std::vector<ParameterSpec> specs_;
  HostMemory beside_;  ///< the arena
  std::chrono::steady_clock::time_point traffic_written_ = std::chrono::steady_clock::now();
  std::string start_;  ///< where weights came from, if not from the seed
  double parameters_ = 0.0;
  std::optional<RunSpeed> speed_;  ///< from the constructor on
  // Of this run alone, if it went on from a checkpoint.
  std::int64_t trained_steps_ = 0;
  std::chrono::steady_clock::time_point started_;
  double trained_seconds_ = 0.0;  ///< of steps alone
  std::int64_t trained_tokens_ = 0;
  StepRows trained_rows_ = {.micro_batches = 0};
  std::optional<double> last_loss_;  ///< of the last step that was not skipped
  std::optional<EvaluationResult> evaluation_;
};

}  // namespace

TrainJob::TrainJob(const CommandLine& line, const Config& config, const Layout& layout)
    : config_(config),
      dry_run_(line.dry_run),
      import_file_(line.import_file),
      export_file_(line.export_file) {
  if (line.steps) {
    config_.train.steps = *line.steps;
  }
  source_ = make_data_source(config_, layout,
                             {.storage = precision_of(config_).storage,
                              .threads = config_.threads > 0 ? config_.threads : 1});
}

TrainJob::TrainJob(const Config& config, std::unique_ptr<DataSource> source)
    : config_(config), source_(std::move(source)) {}

int TrainJob::run(Session& session) {
  Run run(session, config_, *source_);
  if (!export_file_.empty()) {
    return run.export_weights(export_file_);
  }
  return dry_run_ ? run.dry_run() : run.train(import_file_);
}

Program train_program() {
  return {
      .description = {.name = "train",
                      .purpose = "Trains the model of a config under its tensor-parallel x "
                                 "data-parallel layout.",
                      .examples = {"mpirun -np 4 build/train --config configs/ffn_tp2_dp2.yaml",
                                   "build/train --config ffn_tp4_dp1 --steps 50   (as threads)"},
                      .has_steps = true,
                      .has_dry_run = true,
                      .has_weight_files = true},
      .prepare =
          [](const CommandLine& line, const Config& config, const Layout& layout) {
            return std::make_unique<TrainJob>(line, config, layout);
          },
      .stops_itself = true};
}

}  // namespace tandem
