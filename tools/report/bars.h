// Stacked bars, one a run, for what a whole is made of.
#pragma once

#include <string>
#include <vector>

namespace tandem::report {

struct StackedBar {
  std::string name;
  std::vector<double> parts;  ///< one for every part's name
};

/// All bars on one scale, the longest filling the width; a legend above. `total`: how a bar's sum
/// is written at its end.
std::string stacked_bars(const std::string& title, const std::vector<std::string>& part_names,
                         const std::vector<StackedBar>& bars, std::string (*total)(double));

/// A bar of `share` (0 to 1) of a table cell's width.
std::string cell_bar(double share);

}  // namespace tandem::report
