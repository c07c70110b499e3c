#include "train/watch/detectors.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem {

namespace {

constexpr double kSlower = 0.1;
constexpr double kLeastExcess = 1e-3;
constexpr std::size_t kLosses = 100;
constexpr double kSpike = 6.0;
constexpr double kLeastDeviation = 0.01;

/// The lower one of two in the middle: of two ranks, the faster.
double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::string_view name_of(RankPhase phase) {
  constexpr std::array<std::string_view, kRankPhases> kNames = {"data", "compute", "communication",
                                                                "host"};
  return kNames[static_cast<std::size_t>(phase)];
}

StragglerDetector::StragglerDetector(const Layout& layout)
    : streaks_(static_cast<std::size_t>(layout.world())) {
  for (int rank = 0; rank < layout.world(); ++rank) {
    const Layout place{layout.tp, layout.dp, rank};
    tp_groups_.push_back(place.tp_group());
    dp_groups_.push_back(place.dp_group());
  }
}

StragglerDetector::Times StragglerDetector::own_times(std::span<const RankTimes> ranks,
                                                      std::size_t rank) const {
  const auto least = [&](const std::vector<int>& group, double RankTimes::*time) {
    double seconds = ranks[rank].*time;
    for (const int other : group) {
      seconds = std::min(seconds, ranks[static_cast<std::size_t>(other)].*time);
    }
    return seconds;
  };
  return {ranks[rank].data, ranks[rank].compute,
          least(tp_groups_[rank], &RankTimes::tensor_parallel) +
              least(dp_groups_[rank], &RankTimes::data_parallel),
          ranks[rank].host};
}

std::vector<Straggler> StragglerDetector::step(std::span<const RankTimes> ranks) {
  std::vector<Times> times;
  std::vector<double> totals;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    times.push_back(own_times(ranks, rank));
    totals.push_back(std::accumulate(times.back().begin(), times.back().end(), 0.0));
  }
  const double median = lower_median(totals);
  Times medians{};
  for (std::size_t phase = 0; phase < kRankPhases; ++phase) {
    std::vector<double> values;
    for (const Times& rank : times) {
      values.push_back(rank[phase]);
    }
    medians[phase] = lower_median(values);
  }

  std::vector<Straggler> found;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    Streak& streak = streaks_[rank];
    const double excess = totals[rank] - median;
    if (excess <= std::max(kSlower * median, kLeastExcess)) {
      streak = {};
      continue;
    }
    ++streak.steps;
    streak.excess += excess;
    streak.median += median;
    for (std::size_t phase = 0; phase < kRankPhases; ++phase) {
      streak.phases[phase] += times[rank][phase] - medians[phase];
    }
    if (streak.steps < kStepsInARow) {
      continue;
    }
    const auto most = std::max_element(streak.phases.begin(), streak.phases.end());
    const auto phase = static_cast<RankPhase>(most - streak.phases.begin());
    if (told_.emplace(static_cast<int>(rank), phase).second) {
      const Straggler one{.ranks = {static_cast<int>(rank)},
                          .phase = phase,
                          .excess = streak.excess / streak.steps,
                          .phase_excess = *most / streak.steps,
                          .median = streak.median / streak.steps};
      const auto same = std::find_if(found.begin(), found.end(),
                                     [&](const Straggler& other) { return other.phase == phase; });
      if (same == found.end()) {
        found.push_back(one);
      } else {
        same->ranks.push_back(one.ranks[0]);
        same->excess = std::max(same->excess, one.excess);
        same->phase_excess = std::max(same->phase_excess, one.phase_excess);
      }
    }
    streak = {};
  }
  return found;
}

std::optional<LossSpike> LossSpikeDetector::step(double loss) {
  if (losses_.size() >= kStepsInARow) {
    const auto count = static_cast<double>(losses_.size());
    const double mean = std::accumulate(losses_.begin(), losses_.end(), 0.0) / count;
    double squares = 0.0;
    for (const double value : losses_) {
      squares += (value - mean) * (value - mean);
    }
    const double deviation =
        std::max(std::sqrt(squares / (count - 1.0)), kLeastDeviation * std::abs(mean));
    if (loss > mean + kSpike * deviation) {
      return LossSpike{loss, mean, deviation, losses_.size()};
    }
  }
  losses_.push_back(loss);
  if (losses_.size() > kLosses) {
    losses_.pop_front();
  }
  return std::nullopt;
}

std::optional<RoofUse> LowRoofDetector::step(const RoofUse& use) {
  if (use.fraction >= kLow) {
    steps_ = 0;
    sums_ = {};
    return std::nullopt;
  }
  sums_.fraction += use.fraction;
  sums_.exposed += use.exposed;
  sums_.data += use.data;
  if (++steps_ < kStepsInARow) {
    return std::nullopt;
  }
  const RoofUse mean{sums_.fraction / steps_, sums_.exposed / steps_, sums_.data / steps_};
  steps_ = 0;
  sums_ = {};
  return mean;
}

}  // namespace tandem
