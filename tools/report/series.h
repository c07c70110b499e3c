// Long columns of numbers made small enough to draw and to read: smoothing, sampling, quantiles.
// NaN stands for a value that is not there.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tandem::report {

/// Steps over which a column of `count` values is smoothed; 1 where it is too short for that.
std::size_t smoothing_window(std::size_t count);
/// The mean of the values around each, `window` of them; fewer at the ends. At the start as many
/// before as behind, so that a steep fall is not dragged; NaN where there is no value around.
std::vector<double> smoothed(std::span<const double> values, std::size_t window);

/// At most about `most` places, evenly spread, the first and the last among them.
std::vector<std::size_t> spread_places(std::size_t count, std::size_t most);
/// The places of the least and the greatest of each of most/2 parts, in order, and of the first gap
/// in each: the drawn line keeps every spike and every hole. All places if there are no more than
/// `most`.
std::vector<std::size_t> extreme_places(std::span<const double> values, std::size_t most);

/// Of the finite values; NaN if there is none. `fraction` in [0, 1].
double quantile(std::span<const double> values, double fraction);
double median(std::span<const double> values);
/// The newest finite value; NaN if there is none.
double last_value(std::span<const double> values);

}  // namespace tandem::report
