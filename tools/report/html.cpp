#include "tools/report/html.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "train/console.h"

namespace tandem::report {

namespace {

constexpr std::string_view kDash = "–";
constexpr std::string_view kUnknown = "\xEF\xBF\xBD";

/// Bytes of the UTF-8 character that begins at `at`; 0 if none does.
std::size_t character_size(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const std::size_t size = first < 0x80                    ? 1
                           : first >= 0xC2 && first < 0xE0 ? 2
                           : first >= 0xE0 && first < 0xF0 ? 3
                           : first >= 0xF0 && first < 0xF5 ? 4
                                                           : 0;
  if (size == 0 || at + size > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) {
      return 0;
    }
  }
  return size;
}

/// "1234567.8" -> "1,234,567.8"
std::string grouped(std::string digits) {
  const std::size_t first = digits.starts_with('-') ? 1 : 0;
  std::size_t end = digits.find('.');
  end = end == std::string::npos ? digits.size() : end;
  for (std::size_t at = end; at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

/// "1.00e-05" -> "1.00e-5"
std::string with_exponent(double value, int decimals) {
  const std::string text = fmt::format("{:.{}e}", value, decimals);
  const std::size_t e = text.find('e');
  return text.substr(0, e) + "e" + std::to_string(std::stoi(text.substr(e + 1)));
}

}  // namespace

std::string escape(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = character_size(text, at);
    const std::string_view character = text.substr(at, std::max<std::size_t>(size, 1));
    at += character.size();
    if (size == 0) {
      safe += kUnknown;
    } else if (character == "&") {
      safe += "&amp;";
    } else if (character == "<") {
      safe += "&lt;";
    } else if (character == ">") {
      safe += "&gt;";
    } else if (character == "\"") {
      safe += "&quot;";
    } else {
      safe += character;
    }
  }
  return safe;
}

std::string value_text(double value, int digits) {
  if (!std::isfinite(value)) {
    return std::string(kDash);
  }
  if (value == 0.0) {
    return "0";
  }
  const int power = static_cast<int>(std::floor(std::log10(std::abs(value))));
  if (power < -3 || power > 14) {
    return with_exponent(value, digits - 1);
  }
  return grouped(fmt::format("{:.{}f}", value, std::max(0, digits - 1 - power)));
}

std::string count_text(double value) {
  const bool whole = std::abs(value - std::round(value)) < 1e-9 && std::abs(value) < 1e15;
  return whole ? grouped(fmt::format("{:.0f}", value)) : value_text(value, 3);
}

std::string tick_text(double value, double step) {
  if (std::abs(value) < step * 1e-6) {
    return "0";
  }
  const double size = std::abs(value);
  if (size < 1e-2 && step < 1e-3) {
    const std::string text = with_exponent(value, 1);
    const std::size_t zero = text.find(".0e");
    return zero == std::string::npos ? text : text.substr(0, zero) + text.substr(zero + 2);
  }
  constexpr std::array kUnits = {"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  if (step >= 1000.0) {
    while (std::abs(value) >= 1000.0 && unit + 1 < kUnits.size()) {
      value /= 1000.0;
      step /= 1000.0;
      ++unit;
    }
  }
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 6);
  return grouped(fmt::format("{:.{}f}", value, decimals)) + kUnits[unit];
}

std::string seconds_text(double seconds) {
  return seconds < 10.0 ? value_text(seconds, 2) + " s" : duration_text(seconds);
}

std::string bytes_figure(double bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024.0 && unit + 1 < kUnits.size()) {
    bytes /= 1024.0;
    ++unit;
  }
  return fmt::format("{} {}",
                     value_text(bytes, bytes >= 100.0              ? 3
                                       : unit == 0 && bytes < 10.0 ? 1
                                                                   : 2),
                     kUnits[unit]);
}

std::string table(std::string_view caption, const std::vector<std::string>& head,
                  const std::vector<std::vector<Cell>>& rows) {
  std::string html = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table>"
      "<caption>{0}</caption><thead><tr>",
      escape(caption));
  for (std::size_t column = 0; column < head.size(); ++column) {
    const bool number = !rows.empty() && column < rows[0].size() && rows[0][column].number;
    html += fmt::format("<th scope=\"col\"{}>{}</th>", number ? " class=\"n\"" : "",
                        escape(head[column]));
  }
  html += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    html += "<tr>";
    for (std::size_t column = 0; column < row.size(); ++column) {
      const char* const tag = column == 0 ? "th scope=\"row\"" : "td";
      html += fmt::format("<{}{}>{}</{}>", tag, row[column].number ? " class=\"n\"" : "",
                          row[column].html, column == 0 ? "th" : "td");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string folded(std::string_view summary, std::string_view html, bool open) {
  return fmt::format("<details{}><summary>{}</summary>{}</details>\n", open ? " open" : "",
                     escape(summary), html);
}

Cell text_cell(std::string_view text) { return {escape(text), false}; }
Cell number_cell(double value, int digits) { return {value_text(value, digits), true}; }
Cell count_cell(double value) { return {count_text(value), true}; }
Cell figure_cell(std::string text) { return {escape(text), true}; }

}  // namespace tandem::report
