// A strict reader of the part of YAML that a config needs: maps, sequences, scalars and null, each
// with its line and column. What readers of YAML are known to disagree about (duplicate keys, `<<`,
// tabs, octal numbers, quoted booleans) is an error here instead of a guess.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::yaml {

/// Where text came from: a file, or one command-line argument, of which a line number says nothing.
struct Source {
  std::string name;
  bool is_file = true;

  /// "name:line:column" of a file, else the name.
  std::string at(int line, int column) const;
};

enum class Kind { kNull, kScalar, kSequence, kMap };

struct Entry;

struct Node {
  Kind kind = Kind::kNull;
  std::string text;     ///< of a scalar, unquoted
  bool quoted = false;  ///< a quoted or block scalar, which is text and never a number or a boolean
  int line = 1;         ///< from 1, as is the column
  int column = 1;
  std::vector<Node> items;     ///< of a sequence
  std::vector<Entry> entries;  ///< of a map, in the order of the text
};

struct Entry {
  std::string key;
  int line = 1;  ///< of the key
  int column = 1;
  Node value;
};

/// Parses one document of at most 1 MiB and 16 levels; empty text gives a null node. A byte order
/// mark and CRLF line ends are accepted. Throws ConfigError, its text starting with the place, for
/// bad YAML and for tabs in indentation, duplicate keys, `<<`, anchors, aliases, tags, a second
/// document, and text that is not UTF-8.
Node parse(std::string_view text, const Source& source);

/// A value with all that an error about it must say.
struct Field {
  std::string where;  ///< Source::at of the value
  std::string key;    ///< full path, e.g. "optim.lr"
  const Node& node;
};

/// Throws ConfigError "where: key = value: why".
[[noreturn]] void refuse(const Field& field, const std::string& why);

/// Decimal digits and a sign, nothing else: 1e3, 2.0, 0x10, 0010, 1_000 and "5" are refused with
/// the spelling to write instead. Throws ConfigError if outside [least, most].
std::int64_t read_integer(const Field& field, std::int64_t least, std::int64_t most);
std::uint64_t read_unsigned(const Field& field);
/// Any finite decimal number, 1e-4 and .5 among them. `accepts` decides the range and `range`
/// describes it, e.g. "> 0".
double read_number(const Field& field, const std::string& range,
                   const std::function<bool(double)>& accepts);
/// true, false, yes, no, on, off in any case, unquoted.
bool read_bool(const Field& field);
/// Any scalar as it is written: `no` is the text "no".
std::string read_string(const Field& field);

/// At most about 80 bytes of `text`, for an error message.
std::string excerpt(const std::string& text);

/// The shortest text that read_number turns back into the same value.
std::string number_text(double value);
/// Plain where YAML reads it back as the same string, else double-quoted.
std::string string_text(const std::string& value);

}  // namespace tandem::yaml
