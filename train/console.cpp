#include "train/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "parallel/world.h"

namespace tandem {

std::string short_number(double value) {
  constexpr std::array kUnits = {"", " k", " M", " G", " T"};
  std::size_t unit = 0;
  while (std::abs(value) >= 1000.0 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return fmt::format("{:.{}f}{}", value, unit == 0 || value >= 100.0 ? 0 : 1, kUnits[unit]);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) {
    return fmt::format("{} s", whole);
  }
  if (whole < 3600) {
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  }
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string duration_text(double of_steps, double of_run) {
  const bool longer = of_run > std::max(1.1 * of_steps, of_steps + 1.0);
  return duration_text(of_steps) +
         (longer ? fmt::format(" ({} with evaluations and checkpoints)", duration_text(of_run))
                 : "");
}

namespace {

/// Whether somebody watches stdout. Open MPI gives rank 0 a terminal of its own even where mpirun's
/// output is a file, so under a launcher the launcher's stdout decides.
bool watched() {
  if (isatty(STDOUT_FILENO) == 0) {
    return false;
  }
  if (launched_ranks() == 0) {
    return true;
  }
  const int fd = open(fmt::format("/proc/{}/fd/1", getppid()).c_str(), O_WRONLY | O_NOCTTY);
  const bool terminal = fd >= 0 && isatty(fd) == 1;
  if (fd >= 0) {
    close(fd);
  }
  return terminal;
}

}  // namespace

Console::Console(bool visible, std::int64_t last_step, std::int64_t every)
    : visible_(visible), terminal_(visible && watched()), last_step_(last_step), every_(every) {}

void Console::table(const Table& table) {
  if (!visible_) {
    return;
  }
  std::size_t width = 0;
  for (const auto& [label, value] : table.rows) {
    width = std::max(width, label.size());
  }
  fmt::print("{}\n", table.title);
  for (const auto& [label, value] : table.rows) {
    fmt::print("  {:<{}}  {}\n", label, width, value);
  }
  std::fflush(stdout);
}

void Console::step(const StepResult& step, const StepSpeed& speed) {
  if (!visible_) {
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (steps_seen_++ == 0) {
    started_ = now - std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                         std::chrono::duration<double>(step.seconds));
  }
  left_ = std::chrono::duration<double>(now - started_).count() / static_cast<double>(steps_seen_) *
          static_cast<double>(last_step_ - step.step);
  line_seconds_ += step.seconds;
  tokens_ += static_cast<double>(step.tokens);
  const bool due = step.step % every_ == 0 || step.step == 1 || step.step == last_step_;
  if (step.outcome != StepOutcome::kUpdated) {
    line(fmt::format(
        "step {:>6}/{}  skipped: {}", step.step, last_step_,
        step.outcome == StepOutcome::kNoTokens ? "no token to predict in the whole step"
        : step.outcome == StepOutcome::kOverflow
            ? fmt::format("overflow at loss scale {:g}, which is halved", step.loss_scale)
            : "loss or gradient norm is not finite"));
  } else if (due) {
    line(fmt::format(
        "step {:>6}/{}  loss {:.4f}  grad norm {:.3f}  lr {:.2e}  {:>7} tokens/s  {:>3.0f} % of "
        "roof  {} left",
        step.step, last_step_, step.loss, step.grad_norm, step.lr,
        short_number(line_seconds_ > 0.0 ? tokens_ / line_seconds_ : 0.0),
        100.0 * speed.roof_fraction, duration_text(left_)));
  }
  if (due) {
    tokens_ = 0.0;
    line_seconds_ = 0.0;
  }
  draw_bar(step.step);
}

void Console::evaluation(std::int64_t step, const EvaluationResult& evaluation) {
  line(fmt::format("step {:>6}/{}  held-out loss {:.4f} nats per token over {} tokens", step,
                   last_step_, evaluation.loss, evaluation.tokens));
}

void Console::line(const std::string& text) {
  if (!visible_) {
    return;
  }
  clear_bar();
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Console::clear_bar() {
  if (bar_drawn_) {
    fmt::print("\r\x1b[K");
    std::fflush(stdout);
    bar_drawn_ = false;
  }
}

void Console::draw_bar(std::int64_t step) {
  if (!terminal_ || step >= last_step_) {
    return;
  }
  constexpr std::int64_t kWidth = 40;
  const std::int64_t filled = kWidth * step / last_step_;
  fmt::print("\r\x1b[K[{:=<{}}>{:{}}] {}/{}  {} left", "", filled, "", kWidth - filled, step,
             last_step_, duration_text(left_));
  std::fflush(stdout);
  bar_drawn_ = true;
}

}  // namespace tandem
