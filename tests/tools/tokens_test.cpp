// The program `tokens` as its user starts it: what it says of files of every format, the shard it
// writes byte by byte, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/process.h"

namespace tandem::test {

namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename T>
std::string bytes_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t count,
                 const std::string& tokens) {
  return bytes_of<std::int32_t>({magic, version, count}) + std::string(1012, '\0') + tokens;
}

std::string megatron_index() {  // documents of 5 and 1 tokens, 16 bits
  return std::string("MMIDIDX\0\0", 9) + bytes_of<std::uint64_t>({1}) + "\x08" +
         bytes_of<std::uint64_t>({2, 3}) + bytes_of<std::int32_t>({5, 1}) +
         bytes_of<std::int64_t>({0, 10}) + bytes_of<std::int64_t>({0, 1, 2});
}

std::string npy(const std::string& type, const std::string& shape, const std::string& data) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + "}";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\0\x76\0", 10) + header + "\n" + data;
}

class Tokens : public testing::Test {
 protected:
  Outcome tokens(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TANDEM_TOKENS);
    const Outcome outcome = run(arguments, folder_);
    EXPECT_FALSE(outcome.timed_out);
    return outcome;
  }
  /// Of a run that ends well.
  std::string says(std::vector<std::string> arguments) {
    const Outcome outcome = tokens(std::move(arguments));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }
  /// Of a run that is refused with `code`.
  std::string error(int code, std::vector<std::string> arguments) {
    const Outcome outcome = tokens(std::move(arguments));
    EXPECT_EQ(outcome.code, code) << outcome.out;
    EXPECT_EQ(count(outcome.err, "tokens: error: "), 1u) << outcome.err;
    return outcome.err;
  }

  ScratchFolder folder_;
};

TEST_F(Tokens, TellEveryFormatFromItsFirstBytes) {
  folder_.write("a.txt", "In the\nbeginning\n");
  EXPECT_EQ(says({"a.txt"}),
            "text a.txt\n"
            "  documents  2, of 7 to 10 tokens\n"
            "  tokens     17\n"
            "  ids        10 to 116\n"
            "  begins     73 110 32 116 104 101 10 98 101 103 105 110 110 105 110 103 ...\n"
            "  problems   none\n"
            "  config     data: {format: text, path: a.txt}, model: {vocab_size: 117} or more\n");
  folder_.write("b_0.bin", llmc(20240520, 1, 2, bytes_of<std::uint16_t>({5, 50256})));
  folder_.write("b_1.bin", llmc(20240801, 7, 1, bytes_of<std::uint32_t>({128255})));
  EXPECT_EQ(says({"b_*.bin"}),
            "llm.c b_*.bin (2 files)\n"
            "  documents  not marked\n"
            "  tokens     3\n"
            "  ids        5 to 128255\n"
            "  begins     5 50256 128255\n"
            "  problems   none\n"
            "  config     data: {format: llmc, path: \"b_*.bin\", documents: packed}, model: "
            "{vocab_size: 128256} or more\n");
  folder_.write("c.idx", megatron_index());
  folder_.write("c.bin", bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 6}));
  for (const char* name : {"c", "c.idx", "c.bin"}) {
    EXPECT_THAT(says({name}),
                AllOf(HasSubstr("Megatron c\n  documents  2, of 1 to 5 tokens\n"),
                      HasSubstr("  problem    1 documents have fewer than 2 tokens"),
                      HasSubstr("data: {format: megatron, path: " + std::string(name) + "}")));
  }
  folder_.write("d.npy", npy(">i4", "(2,)", std::string("\0\0\0\1\0\1\0\0", 8)));
  EXPECT_THAT(says({"d.npy"}), AllOf(HasSubstr("npy d.npy\n  documents  not marked\n"),
                                     HasSubstr("  begins     1 65536\n")));
  folder_.write("e.bin", bytes_of<std::uint16_t>({1, 0, 7}));
  EXPECT_THAT(error(3, {"e.bin"}), HasSubstr("write --format raw_u16"));
  EXPECT_THAT(says({"e.bin", "--format", "raw_u16"}), HasSubstr("raw_u16 e.bin\n"));
}

// A text becomes a shard that holds the same tokens, 1024 bytes of header and two bytes a token.
TEST_F(Tokens, TextBecomesAShard) {
  const std::string text = "In the\nbeginning \xc3\xa9\n";
  folder_.write("a.txt", text);
  EXPECT_THAT(says({"a.txt", "--output", "a.bin"}),
              AllOf(HasSubstr("written: llm.c a.bin\n"), HasSubstr("  tokens     20\n"),
                    HasSubstr("data: {format: llmc, path: a.bin, documents: packed}, model: "
                              "{vocab_size: 196} or more\n")));
  std::string tokens;
  for (const char byte : text) {
    tokens += {byte, '\0'};
  }
  EXPECT_EQ(folder_.read("a.bin"), llmc(20240520, 1, 20, tokens));
  EXPECT_FALSE(folder_.has("a.bin.unfinished"));
}

TEST_F(Tokens, IdsBeyond16BitsTakeTheWideShard) {
  folder_.write("a.npy", npy("<i4", "(3,)", bytes_of<std::int32_t>({65535, 65536, 0})));
  says({"a.npy", "-o", "a.bin"});
  EXPECT_EQ(folder_.read("a.bin"),
            llmc(20240801, 7, 3, bytes_of<std::uint32_t>({65535, 65536, 0})));
  folder_.write("b.npy", npy("<i4", "(1,)", bytes_of<std::int32_t>({65535})));
  says({"b.npy", "-o", "b.bin"});
  EXPECT_EQ(folder_.read("b.bin"), llmc(20240520, 1, 1, bytes_of<std::uint16_t>({65535})));
}

TEST_F(Tokens, AreCountedToTheLastOfAFileOfManyChunks) {
  std::string text(200001, 'a');
  text.back() = 'z';
  folder_.write("a.txt", text);
  says({"a.txt", "-o", "a.bin"});
  EXPECT_THAT(says({"a.bin"}),
              AllOf(HasSubstr("  tokens     200001\n"), HasSubstr("  ids        97 to 122\n")));
}

TEST_F(Tokens, WhatIsLegalAndProbablyNotMeantIsDoubted) {
  std::string wide;
  for (std::uint32_t i = 0; i < 64; ++i) {
    wide += bytes_of<std::uint32_t>({i});
  }
  folder_.write("wide.bin", wide);
  EXPECT_THAT(says({"wide.bin", "--format", "raw_u16"}),
              HasSubstr("every second token is 0: these are probably 32-bit tokens"));
  folder_.write("zeros.bin", std::string(64, '\0'));
  EXPECT_THAT(says({"zeros.bin", "--format", "raw_u16"}), HasSubstr("every token is 0"));
  folder_.write("dos.txt", "a\r\nb\r\n");
  EXPECT_THAT(says({"dos.txt"}), HasSubstr("2 carriage returns are tokens"));
  folder_.write("good.txt", "ab\ncd\n");
  EXPECT_THAT(says({"good.txt"}), HasSubstr("  problems   none\n"));
}

TEST_F(Tokens, ATokenThatIsNoIdIsNamedWithItsPlace) {
  folder_.write("a.npy", npy("<i4", "(4,)", bytes_of<std::int32_t>({7, -1, 9, -100})));
  const Outcome outcome = tokens({"a.npy", "-o", "a.bin"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("  ids        7 to 9\n"));
  EXPECT_EQ(count(outcome.out, "problem"), 0u) << outcome.out;
  EXPECT_THAT(outcome.err, HasSubstr("2 tokens are no ids (below 0 or above 2147483647), the "
                                     "first: a.npy token 1 (byte 132)"));
  EXPECT_FALSE(folder_.has("a.bin"));
}

TEST_F(Tokens, MistakesAreRefusedInWords) {
  folder_.write("a.txt", "some text\n");
  folder_.write("empty.txt", "");
  EXPECT_THAT(error(2, {}), HasSubstr("See tokens --help."));
  EXPECT_THAT(error(2, {"a.txt", "b.txt"}), HasSubstr("b.txt"));
  EXPECT_THAT(error(2, {"a.txt", "--format", "nmpy"}),
              AllOf(HasSubstr("--format"), HasSubstr("nmpy"), HasSubstr("npy")));
  EXPECT_THAT(error(2, {"a.txt", "--format", "synthetic"}), HasSubstr("in no file"));
  EXPECT_THAT(error(2, {"a.txt", "-o", "./a.txt"}), HasSubstr("is there already"));
  EXPECT_THAT(error(3, {"none.txt"}), HasSubstr("'none.txt' cannot be opened"));
  EXPECT_THAT(error(3, {"empty.txt"}), HasSubstr("'empty.txt' is empty"));
  EXPECT_THAT(error(3, {"a.txt", "--format", "npy"}), HasSubstr("is no .npy file"));
  EXPECT_THAT(error(3, {"a.txt", "-o", "no_folder/a.bin"}),
              HasSubstr("--output no_folder/a.bin: cannot be written: No such file or directory"));
  folder_.write("evaluation.bin", llmc(20240522, 1, 1, "12"));
  EXPECT_THAT(error(3, {"evaluation.bin"}), HasSubstr("evaluation file"));
  EXPECT_EQ(folder_.read("a.txt"), "some text\n");
}

// The name that suggests itself for a Megatron-LM prefix is that of its tokens.
TEST_F(Tokens, NeverWritesOverWhatItReads) {
  const std::string pair = bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 6});
  const std::string shard = llmc(20240520, 1, 2, bytes_of<std::uint16_t>({5, 50256}));
  folder_.write("corpus.idx", megatron_index());
  folder_.write("corpus.bin", pair);
  folder_.write("part_1.bin", shard);
  EXPECT_THAT(error(2, {"corpus", "-o", "corpus.bin"}), HasSubstr("is there already"));
  EXPECT_THAT(error(2, {"corpus", "-o", "corpus.idx"}), HasSubstr("is there already"));
  EXPECT_THAT(error(2, {"part_*.bin", "-o", "part_1.bin"}), HasSubstr("is there already"));
  EXPECT_EQ(folder_.read("corpus.idx"), megatron_index());
  EXPECT_EQ(folder_.read("corpus.bin"), pair);
  EXPECT_EQ(folder_.read("part_1.bin"), shard);
}

TEST_F(Tokens, HelpTeachesWithExamples) {
  EXPECT_THAT(says({"--help"}), AllOf(HasSubstr("Examples:"), HasSubstr("build/tokens data/"),
                                      HasSubstr("--output")));
}

}  // namespace

}  // namespace tandem::test
