// What rank 0 shows on stdout: the start-up table, one line per log.every steps, a progress bar
// where stdout is a terminal, and the lines that sum a run up.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "train/run_directory.h"
#include "train/table.h"

namespace tandem {

class Console {
 public:
  /// `last_step`: the step at which the run ends. A console that is not `visible` prints nothing.
  Console(bool visible, std::int64_t last_step, std::int64_t every);

  void table(const Table& table);
  void step(const StepResult& step, const StepSpeed& speed);
  void evaluation(std::int64_t step, const EvaluationResult& evaluation);
  void line(const std::string& text);
  /// Before something else writes to the terminal. The next step draws the bar again.
  void clear_bar();

 private:
  void draw_bar(std::int64_t step);

  bool visible_;
  bool terminal_;
  bool bar_drawn_ = false;
  std::int64_t last_step_;
  std::int64_t every_;
  std::int64_t steps_seen_ = 0;
  std::chrono::steady_clock::time_point started_;  ///< the first step that was seen
  double left_ = 0.0;    ///< seconds, at the rate so far, evaluations and checkpoints included
  double tokens_ = 0.0;  ///< since the last line
  double line_seconds_ = 0.0;
};

/// "1.2 k", "3.4 M"
std::string short_number(double value);
/// "1 min 05 s"
std::string duration_text(double seconds);
/// "3 s (39 s with evaluations and checkpoints)": of steps alone, and of a run if it took longer by
/// more than a second and a tenth.
std::string duration_text(double of_steps, double of_run);

}  // namespace tandem
