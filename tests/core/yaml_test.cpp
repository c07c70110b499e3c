#include "core/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace tandem::yaml {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

Node parse_file(std::string_view text) { return parse(text, Source{"run.yaml"}); }

/// The message of the ConfigError that `act` throws, "" if it throws none.
template <typename Act>
std::string message(Act act) {
  try {
    act();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

std::string parse_message(std::string_view text) {
  return message([&] { parse_file(text); });
}

/// The value of the one key of "key: text".
Node value_of(const std::string& text) { return parse_file("key: " + text).entries.at(0).value; }

template <typename Read>
auto read_as(const std::string& text, Read read) {
  const Node node = value_of(text);
  return read(Field{"run.yaml:1:6", "train.key", node});
}

std::int64_t integer(const std::string& text) {
  return read_as(text, [](const Field& f) { return read_integer(f, -100, 1000000); });
}
double number(const std::string& text) {
  return read_as(
      text, [](const Field& f) { return read_number(f, ">= 0", [](double v) { return v >= 0; }); });
}
bool boolean(const std::string& text) { return read_as(text, read_bool); }
std::string string(const std::string& text) { return read_as(text, read_string); }

TEST(Yaml, KeepsOrderQuotesAndPlaces) {
  const Node root = parse_file("a: 1\nb:\n  c: 'x'\n  d: [y, ~]\n");
  ASSERT_EQ(root.kind, Kind::kMap);
  ASSERT_EQ(root.entries.size(), 2U);
  EXPECT_EQ(root.entries[0].key, "a");
  const Entry& b = root.entries[1];
  EXPECT_EQ(b.line, 2);
  const Entry& c = b.value.entries.at(0);
  EXPECT_EQ(c.key, "c");
  EXPECT_EQ(c.line, 3);
  EXPECT_EQ(c.column, 3);
  EXPECT_EQ(c.value.text, "x");
  EXPECT_TRUE(c.value.quoted);
  EXPECT_EQ(c.value.column, 6);
  const Node& d = b.value.entries.at(1).value;
  ASSERT_EQ(d.items.size(), 2U);
  EXPECT_FALSE(d.items[0].quoted);
  EXPECT_EQ(d.items[1].kind, Kind::kNull);
}

TEST(Yaml, TextWithoutKeysIsNull) {
  EXPECT_EQ(parse_file("").kind, Kind::kNull);
  EXPECT_EQ(parse_file("# only a comment\n").kind, Kind::kNull);
}

// B133
TEST(Yaml, EmptyNullAndTildeAreNullAndQuotedOnesAreText) {
  for (const char* text : {"", "null", "~", "Null", "NULL"}) {
    EXPECT_EQ(value_of(text).kind, Kind::kNull) << text;
  }
  EXPECT_EQ(string("'null'"), "null");
  EXPECT_EQ(string("\"\""), "");
}

// B133
TEST(Yaml, ByteOrderMarkAndCrlfParseTheSame) {
  const Node root = parse_file(
      "\xEF\xBB\xBF"
      "a: 1\r\nb: 2\r\n");
  ASSERT_EQ(root.entries.size(), 2U);
  EXPECT_EQ(root.entries[0].key, "a");
  EXPECT_EQ(root.entries[0].value.text, "1");
  EXPECT_EQ(root.entries[1].line, 2);
  EXPECT_THAT(parse_message("\xEF\xBB\xBF"
                            "a: 'x\n"),
              StartsWith("run.yaml:1:4: the quote"));
}

// B129
TEST(Yaml, TabIndentationIsNamedWithItsLine) {
  EXPECT_THAT(parse_message("parallel:\n\ttp: 2\n"),
              AllOf(StartsWith("run.yaml:2:1: "), HasSubstr("tab")));
  EXPECT_THAT(parse_message("parallel:\n  \ttp: 2\n"),
              AllOf(StartsWith("run.yaml:2:3: "), HasSubstr("tab")));
  EXPECT_THAT(parse_message("parallel: {\n\ttp: 2}\n"), HasSubstr("tab"));
}

// B129
TEST(Yaml, TabAfterTheColonAndInBlankLinesIsLegal) {
  EXPECT_EQ(parse_file("tp:\t2\n \t\ndp: 3\n").entries.at(0).value.text, "2");
}

// B126
TEST(Yaml, DuplicateKeyNamesKeyAndBothLines) {
  EXPECT_THAT(parse_message("lr: 0.1\nx: 0\nlr: 0.2\n"),
              AllOf(StartsWith("run.yaml:3:1: "), HasSubstr("duplicate key lr"),
                    HasSubstr("line 1"), HasSubstr("line 3")));
  EXPECT_THAT(parse_message("a:\n  'lr': 1\n  lr: 2\n"), HasSubstr("duplicate key lr"));
  EXPECT_THAT(parse_message("a: {lr: 1, lr: 1}\n"), HasSubstr("duplicate key lr"));
  EXPECT_EQ(parse_message("a: {lr: 1}\nb: {lr: 1}\n"), "");
}

TEST(Yaml, AnchorsAliasesMergeKeysAndTagsAreRefused) {
  EXPECT_THAT(parse_message("base: &b\n  tp: 2\nparallel:\n  <<: *b\n"),
              AllOf(StartsWith("run.yaml:1:"), HasSubstr("<<")));
  EXPECT_THAT(parse_message("parallel: {<<: {tp: 2}}\n"), HasSubstr("merge keys"));
  EXPECT_THAT(parse_message("a: *b\n"), HasSubstr("anchor"));
  EXPECT_THAT(parse_message("a: &b 1\n"), HasSubstr("anchors"));
  EXPECT_THAT(parse_message("a: !!int 3\n"), HasSubstr("the tag !!int"));
  EXPECT_THAT(parse_message("a: !mine {b: 1}\n"), HasSubstr("the tag !mine"));
}

TEST(Yaml, OneDocumentOnly) {
  EXPECT_EQ(parse_message("---\na: 1\n...\n"), "");
  EXPECT_THAT(parse_message("a: 1\n---\nb: 2\n"),
              AllOf(StartsWith("run.yaml:2:"), HasSubstr("second document")));
  EXPECT_THAT(parse_message("{a: 1}\nb: 2\n"), HasSubstr("second document"));
}

TEST(Yaml, UnclosedQuotesDoNotSwallowTheRest) {
  EXPECT_THAT(parse_message("name: 'x\nparallel: {tp: 2}\n"),
              AllOf(StartsWith("run.yaml:1:7: "), HasSubstr("quote")));
  EXPECT_THAT(parse_message("name: 'x\nother: 'y'\n"), HasSubstr("run.yaml:1:"));
  EXPECT_THAT(parse_message("name: \"x\ny\"\n"), HasSubstr("quote"));
  EXPECT_EQ(string("'it''s'"), "it's");
  EXPECT_EQ(string(R"("a \" b")"), "a \" b");
}

TEST(Yaml, BrokenYamlNamesTheLineAndShowsIt) {
  EXPECT_THAT(parse_message("a: 1\nb\nc: 2\n"),
              AllOf(StartsWith("run.yaml:3:"), HasSubstr("`c: 2`")));
  EXPECT_THAT(parse_message("m:\n  h: 1\n f: 2\n"), StartsWith("run.yaml:3:"));
  EXPECT_THAT(parse_message("a: {b: 1\n"), HasSubstr("at the end"));
  EXPECT_THAT(parse_message("a: [1, 2\nb: 3\n"), StartsWith("run.yaml:2:"));
  EXPECT_THAT(parse_message("a: 1\n]\n"), StartsWith("run.yaml:2:"));
  EXPECT_THAT(parse_message("a: \"\\q\"\n"), StartsWith("run.yaml:1:"));
  EXPECT_THAT(parse_message("? [a]\n: 1\n"), HasSubstr("cannot be a key"));
  EXPECT_THAT(parse_message(": 1\n"), HasSubstr("a key is missing"));
}

TEST(Yaml, MessagesStayShort) {
  EXPECT_LT(parse_message("a: " + std::string(5000, 'x') + ": y").size(), 300U);
  EXPECT_EQ(excerpt(std::string(79, 'x') + "\xC3\xA9"), std::string(79, 'x') + "...");
  EXPECT_EQ(excerpt("abc"), "abc");
}

TEST(Yaml, DepthAndSizeAreLimited) {
  const auto nested = [](std::size_t levels) {
    std::string text = "a: ";
    return text.append(levels - 1, '[').append(levels - 1, ']');
  };
  EXPECT_EQ(parse_message(nested(16)), "");
  EXPECT_THAT(parse_message(nested(17)), HasSubstr("16 levels"));
  EXPECT_NE(parse_message(std::string(100000, '[')), "");
  EXPECT_EQ(parse_message("#" + std::string((1 << 20) - 1, ' ')), "");
  EXPECT_THAT(parse_message("#" + std::string(1 << 20, ' ')), HasSubstr("limit 1048576"));
}

TEST(Yaml, OnlyUtf8TextIsRead) {
  EXPECT_THAT(parse_message("a: 1\nb: \xFF\xFE\n"),
              AllOf(StartsWith("run.yaml:2:4: "), HasSubstr("UTF-8")));
  EXPECT_THAT(parse_message(std::string("\xFF\xFE"
                                        "a\0:\0",
                                        6)),
              HasSubstr("UTF-8"));
  EXPECT_THAT(parse_message("a: \xC3"), HasSubstr("UTF-8"));
  EXPECT_THAT(parse_message(std::string("a: 1\0", 5)), HasSubstr("control character"));
  EXPECT_EQ(string("d\xC3\xA9j\xC3\xA0"), "d\xC3\xA9j\xC3\xA0");
}

TEST(Yaml, PlaceOfAnArgumentHasNoLine) {
  const Source argument{"--set lr=[", false};
  EXPECT_THAT(message([&] { parse("[", argument); }), StartsWith("--set lr=[: "));
}

// B125
TEST(YamlNumber, EverySpellingOfANumberIsOne) {
  EXPECT_EQ(number("1e-4"), 1e-4);
  EXPECT_EQ(number("1E-5"), 1e-5);
  EXPECT_EQ(number("3.e-4"), 3e-4);
  EXPECT_EQ(number(".5"), 0.5);
  EXPECT_EQ(number("+1e-3"), 1e-3);
  EXPECT_EQ(number("1e+3"), 1000.0);
  EXPECT_EQ(number("7"), 7.0);
  EXPECT_EQ(number("0"), 0.0);
}

// B125
TEST(YamlNumber, WhatIsNoFiniteDecimalNumberIsRefused) {
  for (const char* text : {"abc", ".nan", "nan", ".inf", "-.inf", "inf", "1e999", "0x10", "1_000",
                           "1,5", "1e", "e5", ".", "+-1", "1.2.3", "1 2", "{a: 1}", "[1]"}) {
    EXPECT_THAT(message([&] { number(text); }),
                AllOf(StartsWith("run.yaml:1:6: train.key = "), HasSubstr("a number >= 0")))
        << text;
  }
  EXPECT_THAT(message([] { number("\"1e-4\""); }), HasSubstr("quotes"));
  EXPECT_THAT(message([] { number("-1"); }), AllOf(HasSubstr("= -1"), HasSubstr("out of range")));
  EXPECT_THAT(message([] { number("0010"); }), HasSubstr("write 10"));
}

TEST(YamlInteger, DecimalDigitsAndASign) {
  EXPECT_EQ(integer("10"), 10);
  EXPECT_EQ(integer("0"), 0);
  EXPECT_EQ(integer("-7"), -7);
  EXPECT_EQ(integer("+7"), 7);
}

TEST(YamlInteger, OtherSpellingsAreRefusedWithTheOneToWrite) {
  const std::pair<const char*, const char*> spellings[] = {
      {"1e3", "write 1000"}, {"2.0", "write 2"},     {"1_000", "write 1000"}, {"0x10", "write 16"},
      {"0o10", "write 8"},   {"0010", "write 10"},   {"08", "write 8"},       {"-007", "write -7"},
      {"00", "write 0"},     {"1,000", "write 1000"}};
  for (const auto& [text, remedy] : spellings) {
    EXPECT_THAT(message([&] { integer(text); }),
                AllOf(StartsWith("run.yaml:1:6: train.key = " + std::string(text) + ":"),
                      HasSubstr(remedy)));
  }
}

TEST(YamlInteger, WhatIsNoIntegerInRangeIsRefusedWithTheRange) {
  for (const char* text :
       {"2.5", "abc", "1e-3", "--1", "+", "0x", "{a: 1}", "[1]", "1 2", "true"}) {
    EXPECT_THAT(message([&] { integer(text); }),
                AllOf(HasSubstr("train.key = "), HasSubstr("an integer")))
        << text;
  }
  EXPECT_THAT(message([] { integer("'5'"); }), HasSubstr("quotes"));
  EXPECT_THAT(message([] { integer("-101"); }), HasSubstr("out of range"));
  EXPECT_THAT(message([] { integer("99999999999999999999"); }), HasSubstr("out of range"));
  const auto count = [](const Field& f) { return read_integer(f, 1, 2147483647); };
  EXPECT_THAT(message([&] { read_as("4294967296", count); }), HasSubstr("from 1 to 2147483647"));
  EXPECT_THAT(message([&] { read_as("0", count); }), HasSubstr("an integer >= 1"));
}

TEST(YamlInteger, UnsignedRefusesSignsAndWhatDoesNotFit) {
  EXPECT_EQ(read_as("18446744073709551615", read_unsigned),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_THAT(message([] { read_as("-1", read_unsigned); }), HasSubstr("out of range"));
  EXPECT_THAT(message([] { read_as("18446744073709551616", read_unsigned); }),
              HasSubstr("out of range"));
}

// B131
TEST(YamlBool, WordsInAnyCaseAndNothingElse) {
  for (const char* text : {"true", "yes", "on", "True", "YES", "On"}) EXPECT_TRUE(boolean(text));
  for (const char* text : {"false", "no", "off", "False", "NO", "Off"}) EXPECT_FALSE(boolean(text));
  for (const char* text : {"1", "0", "y", "n", "\"false\"", "'true'", "{a: 1}", "maybe"}) {
    EXPECT_THAT(message([&] { boolean(text); }),
                AllOf(HasSubstr("train.key = "), HasSubstr("true or false")))
        << text;
  }
}

// B131
TEST(YamlString, ScalarsStayAsWritten) {
  for (const char* text : {"no", "on", "NO", "1e3", "0010", "true"}) EXPECT_EQ(string(text), text);
  EXPECT_THAT(message([] { string("[a]"); }), HasSubstr("expected text"));
}

TEST(YamlText, NumbersReadBackToTheSameBits) {
  for (const double value :
       {0.1, 1.0 / 3, 1e-5, 60.0, 5e-324, 1.7976931348623157e308, 123456789.0}) {
    EXPECT_EQ(number(number_text(value)), value);
  }
}

TEST(YamlText, StringsReadBackToTheSameBytes) {
  for (const char* value :
       {"a",  "",    "null", "NULL", "~",    "-",        "...", "a b",          "a: b", "a#b", " #",
        "'",  "\"",  "\\n",  "\n",   "\x7f", "\xC3\xA9", "{",   "data/x-1.txt", "/abs", "&a",  "*a",
        "!a", "1e3", "-x",   "..",   "%",    "@",        "`"}) {
    EXPECT_EQ(string(string_text(value)), value) << string_text(value);
  }
}

}  // namespace
}  // namespace tandem::yaml
