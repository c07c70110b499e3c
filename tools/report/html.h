// Text for the page: escaping, numbers as people read them, and tables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::report {

/// Safe inside an element and inside a quoted attribute. Bytes that are not UTF-8 become U+FFFD.
std::string escape(std::string_view text);

/// A value to `digits` significant digits, thousands in groups; a dash where it is not finite.
std::string value_text(double value, int digits = 4);
/// Whole where it is, else to three digits.
std::string count_text(double value);
/// A tick's value with the decimals that ticks `step` apart need; "20k", "1e-5" where that is
/// shorter.
std::string tick_text(double value, double step);
/// "12 s", "3 min 20 s"; bytes as "1.5 MiB".
std::string seconds_text(double seconds);
std::string bytes_figure(double bytes);

struct Cell {
  std::string html;
  bool number = false;  ///< right-aligned
};

/// Rows under `head`; the first cell of a row names it. Scrolls by itself where it is too wide.
std::string table(std::string_view caption, const std::vector<std::string>& head,
                  const std::vector<std::vector<Cell>>& rows);
/// The same behind a summary that opens it.
std::string folded(std::string_view summary, std::string_view html, bool open = false);

Cell text_cell(std::string_view text);
Cell number_cell(double value, int digits = 4);
Cell count_cell(double value);
Cell figure_cell(std::string text);

}  // namespace tandem::report
