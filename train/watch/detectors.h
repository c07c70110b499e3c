// What is unusual in a run, judged from plain numbers: a rank that holds up the others, a loss that
// jumps, a job far below its roof. Each looks at many steps, so that noise does not count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/layout.h"

namespace tandem {

/// For so many steps in a row something has to be unusual.
inline constexpr int kStepsInARow = 20;

/// What a rank spent a step on, in seconds.
struct RankTimes {
  double data = 0.0;     ///< fetching micro-batches
  double compute = 0.0;  ///< what is none of the others
  /// Inside the collectives of its groups and their waits, as far as they kept it from computing.
  double tensor_parallel = 0.0, data_parallel = 0.0;
  double host = 0.0;  ///< ready to run without a CPU, or writing metrics
};

enum class RankPhase : std::uint8_t { kData, kCompute, kCommunication, kHost };
inline constexpr std::size_t kRankPhases = 4;
std::string_view name_of(RankPhase phase);

/// Ranks that were slower than the median rank for kStepsInARow steps; means over these, in seconds
/// of a step and of one such rank.
struct Straggler {
  std::vector<int> ranks;
  RankPhase phase = RankPhase::kData;  ///< in which most of it is lost
  double excess = 0.0;                 ///< over the median
  double phase_excess = 0.0;           ///< of it, in `phase`
  double median = 0.0;
};

/// Finds ranks that are slower than the median by 10 %, and by more than a millisecond. Collectives
/// give all ranks the same wall time, so what counts is a rank's own time: its step without the
/// time in which it waited for peers. Of the time in a group's collectives that is taken to be what
/// exceeds the least among the group's ranks, since the last to come waits for nobody.
class StragglerDetector {
 public:
  explicit StragglerDetector(const Layout& layout);

  /// The times of one step, by rank. What is returned is returned once per rank and phase.
  std::vector<Straggler> step(std::span<const RankTimes> ranks);

 private:
  using Times = std::array<double, kRankPhases>;
  struct Streak {
    int steps = 0;
    double excess = 0.0, median = 0.0;
    Times phases{};  ///< excess of each
  };

  Times own_times(std::span<const RankTimes> ranks, std::size_t rank) const;

  std::vector<std::vector<int>> tp_groups_, dp_groups_;  ///< by rank
  std::vector<Streak> streaks_;
  std::set<std::pair<int, RankPhase>> told_;
};

struct LossSpike {
  double loss = 0.0, mean = 0.0, deviation = 0.0;
  std::size_t steps = 0;  ///< that mean and deviation are of
};

/// Finds a loss above the mean of the last hundred by six standard deviations. Of these it wants at
/// least kStepsInARow; one percent of the mean is the least deviation.
class LossSpikeDetector {
 public:
  std::optional<LossSpike> step(double loss);

 private:
  std::deque<double> losses_;
};

/// Shares of 1.
struct RoofUse {
  double fraction = 0.0;  ///< of the matmul roof
  double exposed = 0.0;   ///< of a step, in collectives
  double data = 0.0;      ///< of a step, fetching
};

/// Finds a job below a tenth of its roof for kStepsInARow steps.
class LowRoofDetector {
 public:
  static constexpr double kLow = 0.1;

  /// The mean over those steps.
  std::optional<RoofUse> step(const RoofUse& use);

 private:
  int steps_ = 0;
  RoofUse sums_;
};

}  // namespace tandem
