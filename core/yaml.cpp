#include "core/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cstddef>
#include <sstream>
#include <utility>

#include "core/error.h"

namespace tandem::yaml {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxDepth = 16;

[[noreturn]] void fail(const Source& source, int line, int column, const std::string& why) {
  throw ConfigError(source.at(line, column) + ": " + why);
}

/// Bytes of the UTF-8 character that starts at `at`, 0 if there is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xC2 && lead < 0xE0 ? 2
                             : lead >= 0xE0 && lead < 0xF0 ? 3
                             : lead >= 0xF0 && lead < 0xF5 ? 4
                                                           : 0;
  if (at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

/// The text without byte order mark and carriage returns.
std::string normalize(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      out += '\n';
    }
  }
  return out;
}

void check_characters(const std::string& text, const Source& source) {
  int line = 1;
  int column = 1;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0) fail(source, line, column, "this is not UTF-8 text: save the file as UTF-8");
    if ((byte < 0x20 && byte != '\t' && byte != '\n') || byte == 0x7F) {
      fail(source, line, column,
           "a control character (code " + std::to_string(byte) +
               ") stands here: a config is plain UTF-8 text, remove it");
    }
    column = byte == '\n' ? 1 : column + 1;
    if (byte == '\n') ++line;
    i += length;
  }
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// yaml-cpp says "illegal map value" of a tab, so tabs are looked for first. Blank lines may hold
/// them.
void check_indentation(const std::vector<std::string>& lines, const Source& source) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t content = lines[i].find_first_not_of(" \t");
    const std::size_t tab = lines[i].find('\t');
    if (content == std::string::npos || tab >= content) continue;
    fail(source, static_cast<int>(i) + 1, static_cast<int>(tab) + 1,
         "a tab indents this line, and YAML indents with spaces only: replace the tab by spaces");
  }
}

/// Whether the quote that opens at `start` is closed on the same line.
bool quote_closes(const std::string& line, std::size_t start) {
  const char quote = line[start];
  for (std::size_t i = start + 1; i < line.size(); ++i) {
    if (quote == '"' && line[i] == '\\') {
      ++i;
    } else if (line[i] == quote) {
      if (quote == '"' || i + 1 == line.size() || line[i + 1] != quote) return true;
      ++i;
    }
  }
  return false;
}

/// Builds the tree from yaml-cpp's events and refuses what yaml-cpp lets pass.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const Source& source, const std::vector<std::string>& lines)
      : source_(source), lines_(lines) {}

  Node take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (started_) {
      fail_at(mark,
              "a second document starts here, and a config is one: remove the `---` or the text "
              "after the end of the first");
    }
    started_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(make(Kind::kNull, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (tag == "!") check_quote(mark);
    Node node = make(Kind::kScalar, mark);
    node.text = value;
    node.quoted = tag == "!";
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Kind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  /// A map or sequence whose end has not come; `key` is the map's key that waits for its value.
  struct Open {
    Node node;
    Entry key;
    bool has_key = false;
  };

  [[noreturn]] void fail_at(const YAML::Mark& mark, const std::string& why) const {
    fail(source_, mark.line + 1, mark.column + 1, why);
  }

  static Node make(Kind kind, const YAML::Mark& mark) {
    Node node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) {
      fail_at(mark,
              "anchors (&), aliases (*) and merge keys (<<) are not read here: write the values "
              "out where they are used");
    }
  }

  /// yaml-cpp gives "?" for plain and "!" for quoted values without a tag.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") {
      constexpr std::string_view kStandard = "tag:yaml.org,2002:";
      const std::string shown =
          tag.starts_with(kStandard) ? "!!" + tag.substr(kStandard.size()) : tag;
      fail_at(mark, "the tag " + shown + " is not read here: write the value alone");
    }
  }

  /// yaml-cpp lets a single quote run to the end of the file, over every key on its way.
  void check_quote(const YAML::Mark& mark) const {
    const std::string& line = lines_.at(static_cast<std::size_t>(mark.line));
    const auto start = static_cast<std::size_t>(mark.column);
    if ((line[start] == '\'' || line[start] == '"') && !quote_closes(line, start)) {
      fail_at(mark, "the quote that opens here is not closed on its line: close it");
    }
  }

  void open(Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (!stack_.empty() && stack_.back().node.kind == Kind::kMap && !stack_.back().has_key) {
      fail_at(mark,
              "a map or a sequence cannot be a key: close the bracket that opens here, or write a "
              "word");
    }
    if (stack_.size() == kMaxDepth) {
      fail_at(mark, "more than " + std::to_string(kMaxDepth) + " levels of maps and sequences");
    }
    stack_.push_back({make(kind, mark), {}, false});
  }

  void close() {
    Node node = std::move(stack_.back().node);
    stack_.pop_back();
    add(std::move(node));
  }

  void add(Node node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = stack_.back();
    if (parent.node.kind == Kind::kSequence) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      start_entry(parent, node);
    } else {
      parent.key.value = std::move(node);
      parent.node.entries.push_back(std::move(parent.key));
      parent.has_key = false;
    }
  }

  void start_entry(Open& map, const Node& key) const {
    if (key.kind == Kind::kNull) {
      fail(source_, key.line, key.column, "a key is missing here: write `key: value`");
    }
    if (key.text == "<<") {
      fail(source_, key.line, key.column,
           "merge keys (<<) are not read here: write the values out where they are used");
    }
    for (const Entry& earlier : map.node.entries) {
      if (earlier.key == key.text) {
        fail(source_, key.line, key.column,
             "duplicate key " + key.text + ", first given on line " + std::to_string(earlier.line) +
                 " and again on line " + std::to_string(key.line) + ": remove one of the two");
      }
    }
    map.key = Entry{key.text, key.line, key.column, {}};
    map.has_key = true;
  }

  const Source& source_;
  const std::vector<std::string>& lines_;
  std::vector<Open> stack_;
  Node root_;
  bool started_ = false;
};

}  // namespace

std::string Source::at(int line, int column) const {
  if (!is_file) return name;
  return name + ":" + std::to_string(line) + ":" + std::to_string(column);
}

Node parse(std::string_view raw, const Source& source) {
  if (raw.size() > kMaxBytes) {
    fail(source, 1, 1,
         "a text of " + std::to_string(raw.size()) + " bytes is no config (limit " +
             std::to_string(kMaxBytes) + ")");
  }
  const std::string text = normalize(raw);
  check_characters(text, source);
  const std::vector<std::string> lines = split_lines(text);
  check_indentation(lines, source);
  std::istringstream stream(text);
  try {
    YAML::Parser parser(stream);
    TreeBuilder builder(source, lines);
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.take_root();
  } catch (const YAML::Exception& e) {
    const auto at = static_cast<std::size_t>(e.mark.line);
    const std::string near = at < lines.size() ? "near `" + excerpt(lines[at]) + "`" : "at the end";
    fail(source, e.mark.line + 1, e.mark.column + 1,
         "not valid YAML (" + e.msg + ") " + near +
             ": check the indentation, colons, quotes and brackets here and just above");
  }
}

}  // namespace tandem::yaml
