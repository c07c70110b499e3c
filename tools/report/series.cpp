#include "tools/report/series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/statistics.h"

namespace tandem::report {

namespace {
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
}

std::size_t smoothing_window(std::size_t count) {
  return count < 50 ? 1 : count / 50 | 1;  // odd: as many before as behind
}

std::vector<double> smoothed(std::span<const double> values, std::size_t window) {
  // Running sums; doubles hold those of 1e5 losses to 1e-10.
  std::vector<double> sums(values.size() + 1, 0.0);
  std::vector<std::size_t> counts(values.size() + 1, 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool there = std::isfinite(values[i]);
    sums[i + 1] = sums[i] + (there ? values[i] : 0.0);
    counts[i + 1] = counts[i] + (there ? 1 : 0);
  }
  std::vector<double> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t half = std::min(window / 2, i);
    const std::size_t end = std::min(values.size(), i + half + 1);
    const std::size_t count = counts[end] - counts[i - half];
    result[i] = count == 0 ? kNaN : (sums[end] - sums[i - half]) / static_cast<double>(count);
  }
  return result;
}

std::vector<std::size_t> spread_places(std::size_t count, std::size_t most) {
  std::vector<std::size_t> places;
  if (count <= most) {
    for (std::size_t i = 0; i < count; ++i) {
      places.push_back(i);
    }
    return places;
  }
  for (std::size_t i = 0; i < most; ++i) {
    places.push_back(i * (count - 1) / (most - 1));
  }
  return places;
}

std::vector<std::size_t> extreme_places(std::span<const double> values, std::size_t most) {
  if (values.size() <= most) {
    return spread_places(values.size(), most);
  }
  const std::size_t parts = std::max<std::size_t>(most / 2, 1);
  std::vector<std::size_t> places;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = part * values.size() / parts;
    const std::size_t end = (part + 1) * values.size() / parts;
    std::vector<std::size_t> kept;
    std::size_t least = end, greatest = end, gap = end;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(values[i])) {
        gap = std::min(gap, i);
        continue;
      }
      least = least == end || values[i] < values[least] ? i : least;
      greatest = greatest == end || values[i] > values[greatest] ? i : greatest;
    }
    for (const std::size_t place : {least, greatest, gap}) {
      if (place != end) {
        kept.push_back(place);
      }
    }
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    places.insert(places.end(), kept.begin(), kept.end());
  }
  return places;
}

double quantile(std::span<const double> values, double fraction) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite),
               [](double value) { return std::isfinite(value); });
  if (finite.empty()) {
    return kNaN;
  }
  return tandem::quantile(std::move(finite), fraction);
}

double median(std::span<const double> values) { return quantile(values, 0.5); }

double last_value(std::span<const double> values) {
  const auto last = std::find_if(values.rbegin(), values.rend(),
                                 [](double value) { return std::isfinite(value); });
  return last == values.rend() ? kNaN : *last;
}

}  // namespace tandem::report
