// Values of YAML scalars, and the text that reads back as a value.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "core/error.h"
#include "core/yaml.h"

namespace tandem::yaml {
namespace {

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string_view without_sign(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  return text;
}

/// 0010 is 8 to some readers of YAML and 10 to others.
bool has_leading_zero(std::string_view text) {
  const std::string_view digits = without_sign(text);
  return digits.size() > 1 && digits[0] == '0' && is_digits(digits);
}

std::string quoted_text(const std::string& value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      constexpr std::string_view kHex = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

/// A decimal number in the usual spellings; nothing for others and for what double cannot hold.
std::optional<double> parse_number(std::string_view text) {
  const std::string_view digits = without_sign(text);
  if (digits.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return {};
  if (digits.empty() || !(digits[0] == '.' || (digits[0] >= '0' && digits[0] <= '9'))) return {};
  double value = 0;
  const auto [end, status] = std::from_chars(digits.begin(), digits.end(), value);
  if (status != std::errc{} || end != digits.end()) return {};
  return text[0] == '-' ? -value : value;
}

/// How to write as an integer what was written otherwise; empty if it is none.
std::string integer_spelling(const std::string& text) {
  std::string plain;
  for (const char c : text) {
    if (c != '_' && c != ',') plain += c;
  }
  if (has_leading_zero(plain)) {
    const std::string_view digits = without_sign(plain);
    const std::size_t first = std::min(digits.find_first_not_of('0'), digits.size() - 1);
    std::string spelling = plain[0] == '-' ? "-" : "";
    return spelling.append(digits.substr(first));
  }
  const std::string low = lower(plain);
  if (low.starts_with("0x") || low.starts_with("0o")) {
    std::uint64_t value = 0;
    const char* end = low.data() + low.size();
    const auto result = std::from_chars(low.data() + 2, end, value, low[1] == 'x' ? 16 : 8);
    return result.ec == std::errc{} && result.ptr == end ? std::to_string(value) : "";
  }
  const std::optional<double> value = parse_number(plain);
  if (!value || *value != std::floor(*value) || std::abs(*value) > 1e15) return "";
  return std::to_string(static_cast<std::int64_t>(*value));
}

std::string range_text(std::int64_t least, std::int64_t most) {
  if (most >= std::numeric_limits<std::int32_t>::max()) {
    return "an integer >= " + std::to_string(least);
  }
  return "an integer from " + std::to_string(least) + " to " + std::to_string(most);
}

[[noreturn]] void refuse_integer(const Field& field, const std::string& range) {
  const Node& node = field.node;
  if (node.kind != Kind::kScalar) refuse(field, "expected " + range);
  if (node.quoted) refuse(field, "quotes make it text: write " + range + " without quotes");
  if (const std::string spelling = integer_spelling(node.text); !spelling.empty()) {
    refuse(field, "not written as a decimal integer: write " + spelling);
  }
  refuse(field, "not an integer: write " + range);
}

/// Parses the whole text into `value`; false if it is no plain decimal integer. Out of range
/// throws.
template <typename T>
bool parse_integer(const Field& field, const std::string& range, T& value) {
  const Node& node = field.node;
  if (node.kind != Kind::kScalar || node.quoted || has_leading_zero(node.text)) return false;
  std::string_view text = node.text;
  if (!is_digits(without_sign(text))) return false;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto status = std::from_chars(text.begin(), text.end(), value);
  if (status.ec != std::errc{} || status.ptr != text.end()) {
    refuse(field, "out of range: write " + range);
  }
  return true;
}

}  // namespace

std::string excerpt(const std::string& text) {
  constexpr std::size_t kLongest = 80;
  if (text.size() <= kLongest) return text;
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // whole UTF-8
  return text.substr(0, end) + "...";
}

void refuse(const Field& field, const std::string& why) {
  const Node& node = field.node;
  const std::string value = node.kind == Kind::kSequence ? "a sequence"
                            : node.kind == Kind::kMap    ? "a map"
                            : node.kind == Kind::kNull   ? "nothing"
                            : node.quoted                ? quoted_text(excerpt(node.text))
                                                         : excerpt(node.text);
  throw ConfigError(field.where + ": " + field.key + " = " + value + ": " + why);
}

std::int64_t read_integer(const Field& field, std::int64_t least, std::int64_t most) {
  const std::string range = range_text(least, most);
  std::int64_t value = 0;
  if (!parse_integer(field, range, value)) refuse_integer(field, range);
  if (value < least) refuse(field, "out of range: write " + range);
  if (value > most) {
    refuse(field, "out of range: write an integer from " + std::to_string(least) + " to " +
                      std::to_string(most));
  }
  return value;
}

std::uint64_t read_unsigned(const Field& field) {
  const std::string range = "an integer from 0 to 18446744073709551615";
  std::uint64_t value = 0;
  if (!parse_integer(field, range, value)) refuse_integer(field, range);
  return value;
}

double read_number(const Field& field, const std::string& range,
                   const std::function<bool(double)>& accepts) {
  const Node& node = field.node;
  const std::string expected = "a number " + range;
  if (node.kind != Kind::kScalar) refuse(field, "expected " + expected);
  if (node.quoted) refuse(field, "quotes make it text: write " + expected + " without quotes");
  if (has_leading_zero(node.text)) {
    refuse(field, "not written as a decimal number: write " + integer_spelling(node.text));
  }
  const std::optional<double> value = parse_number(node.text);
  if (!value) refuse(field, "not a finite decimal number: write " + expected);
  if (!accepts(*value)) refuse(field, "out of range: write " + expected);
  return *value;
}

bool read_bool(const Field& field) {
  const Node& node = field.node;
  if (node.kind != Kind::kScalar) refuse(field, "expected true or false");
  if (node.quoted) refuse(field, "quotes make it text: write true or false without quotes");
  const std::string text = lower(node.text);
  if (text == "true" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "no" || text == "off") return false;
  refuse(field, "not a boolean: write true or false");
}

std::string read_string(const Field& field) {
  if (field.node.kind != Kind::kScalar) refuse(field, "expected text");
  return field.node.text;
}

std::string number_text(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

std::string string_text(const std::string& value) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  const bool plain = !value.empty() && value.find_first_not_of(kPlain) == std::string::npos &&
                     value[0] != '-' && value != "..." && lower(value) != "null";
  return plain ? value : quoted_text(value);
}

}  // namespace tandem::yaml
