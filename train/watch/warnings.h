// What a run warns of while it goes on, each cause once, with what to do about it: threads and
// hosts that do not fit, values that are not finite, a rank that holds up the others, a loss that
// jumps, a job far below its roof. Rank 0 says it on stderr and keeps it in metrics.jsonl.
#pragma once

#include <string>
#include <vector>

#include "train/config.h"
#include "train/console.h"
#include "train/run_directory.h"
#include "train/session.h"
#include "train/state.h"
#include "train/trainer.h"
#include "train/watch/detectors.h"
#include "train/watch/rank_clock.h"

namespace tandem {

class RunWarnings {
 public:
  /// Collective over all ranks: how they were placed is looked at first, and told as of step
  /// `step`. `directory`: on rank 0. All arguments outlive it.
  RunWarnings(Session& session, const Config& config, Console& console, RunDirectory* directory,
              std::int64_t step);

  /// Before a step of the trainer.
  void start_step() { clock_.start(); }
  /// After it, when it is told of. Collective over all ranks at some steps.
  void end_step(const StepResult& step, const StepSpeed& speed, const TrainState& state);

 private:
  void compare_ranks(const StepResult& step);
  void look_at_values(const StepResult& step, const TrainState& state);
  void look_at_speed(const StepResult& step, const StepSpeed& speed);
  std::string text_of(const Straggler& straggler) const;
  std::string text_of(const RoofUse& use, const StepResult& step) const;
  void warn(std::int64_t step, const char* kind, const std::string& text);

  const RankContext* rank_;
  const HostMap* hosts_;
  const Config* config_;
  Console* console_;
  RunDirectory* directory_;
  RankClock clock_;
  int threads_here_ = 0, cpus_here_ = 0;  ///< of rank 0's host
  std::vector<RankTimes> own_;            ///< of the steps since ranks were compared
  std::vector<RankTimes> all_;
  StragglerDetector stragglers_;
  LossSpikeDetector losses_;
  LowRoofDetector roof_;
  bool told_non_finite_ = false, told_spike_ = false, told_roof_ = false;
};

}  // namespace tandem
