// Curves over steps or time as HTML that needs no script: the plot is an SVG stretched to the width
// there is, its texts are HTML beside it and keep their size.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tandem::report {

struct Curve {
  std::string name;          ///< at the line's end
  std::size_t run = 0;       ///< decides colour and letter
  std::vector<double> x, y;  ///< as long as each other; NaN in y leaves a hole
  bool is_smoothed = true;   ///< the raw values are drawn thin behind their running mean
  bool is_sparse = false;    ///< dots on a dashed line
};

struct LineChart {
  std::string id, title, unit;
  enum class X { kStep, kSeconds } x = X::kStep;
  bool from_zero = false;  ///< the axis begins at 0
  /// The axis is logarithmic where the greatest value is this many times the least; 0 = never.
  double log_above = 0.0;
  /// Values far above nearly all others do not stretch the axis: the text says how many.
  bool cuts_spikes = false;
  std::vector<Curve> curves;
};

struct DrawnChart {
  std::string html;  ///< a figure; empty if no curve has a value
  std::string json;  ///< what the script reads values from: one object
};

/// `runs`: on the page; with several, curves carry letters.
DrawnChart draw(const LineChart& chart, std::size_t runs);

/// "A", "B" ... of the runs of a page.
std::string letter(std::size_t run);

}  // namespace tandem::report
