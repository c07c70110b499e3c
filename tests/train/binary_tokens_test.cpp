// The binary token formats, byte by byte: what is right is read, and what is wrong is said with the
// file, what was expected and what was found.
#include "train/data/binary_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "core/error.h"
#include "tests/train/data_test_util.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Ids = std::vector<std::int32_t>;

/// Little-endian bytes of numbers.
class Bytes {
 public:
  template <typename T>
  Bytes& add(std::initializer_list<T> values) {
    for (const T value : values) {
      text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return *this;
  }
  Bytes& text(const std::string& more) {
    text_ += more;
    return *this;
  }
  Bytes& zeros(std::size_t count) {
    text_.append(count, '\0');
    return *this;
  }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

class BinaryFiles : public ::testing::Test {
 protected:
  BinaryFiles()
      : folder_(fs::temp_directory_path() / ("tandem_tokens_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~BinaryFiles() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }

  fs::path folder_;
};

Ids all(const TokenStore& store) {
  Ids ids(static_cast<std::size_t>(store.document_starts().back()));
  store.read(0, ids);
  return ids;
}

template <typename Open>
std::string refusal(Open&& open) {
  try {
    open();
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t count,
                 const std::string& tokens) {
  return Bytes().add<std::int32_t>({magic, version, count}).zeros(1012).text(tokens).str();
}

TEST_F(BinaryFiles, LlmcShardsOfBothWidthsAreJoinedInOrderOfName) {
  write("train_1.bin", llmc(20240801, 7, 2, Bytes().add<std::uint32_t>({70000, 128255}).str()));
  write("train_0.bin", llmc(20240520, 1, 3, Bytes().add<std::uint16_t>({0, 1, 50256}).str()));
  const auto store = open_llmc((folder_ / "train_*.bin").string());
  EXPECT_EQ(all(*store), (Ids{0, 1, 50256, 70000, 128255}));
  EXPECT_THAT(store->document_starts(), ElementsAre(0, 3, 5));
  Ids middle(3);
  store->read(2, middle);
  EXPECT_EQ(middle, (Ids{50256, 70000, 128255}));
  EXPECT_THAT(store->place(4), AllOf(HasSubstr("train_1.bin token 1"), HasSubstr("(byte 1028)")));
  EXPECT_THAT(store->name(), HasSubstr("(2 files)"));
}

TEST_F(BinaryFiles, ABrokenLlmcShardIsRefusedInWords) {
  const auto says = [&](const std::string& bytes) {
    const std::string path = write("x.bin", bytes);
    return refusal([&] { open_llmc(path); });
  };
  const std::string three(6, '\1');
  EXPECT_EQ(says(llmc(20240520, 1, 3, three)), "");
  EXPECT_THAT(says("short"), HasSubstr("has 5 bytes; the header of a llm.c shard alone has 1024"));
  EXPECT_THAT(says(llmc(1, 1, 3, three)), HasSubstr("begins with 1, not with 20240520"));
  EXPECT_THAT(says(llmc(20240522, 1, 3, three)), HasSubstr("evaluation file"));
  EXPECT_THAT(says(llmc(20240520, 7, 3, three)), HasSubstr("has version 7"));
  EXPECT_THAT(says(llmc(20240520, 1, 4, three)),
              HasSubstr("says it holds 4 tokens, which makes 1032 bytes, and has 1030"));
  EXPECT_THAT(says(llmc(20240520, 1, -1, "")), HasSubstr("-1 tokens"));
  EXPECT_THAT(refusal([&] { open_llmc((folder_ / "none_*.bin").string()); }),
              HasSubstr("none_*.bin' cannot be opened"));
}

/// The sample of three sequences in two documents.
std::string index_of(std::uint8_t code, std::int64_t item,
                     const std::vector<std::int64_t>& documents = {0, 2, 3}) {
  Bytes bytes;
  bytes.text("MMIDIDX").zeros(2).add<std::uint64_t>({1}).add<std::uint8_t>({code});
  bytes.add<std::uint64_t>({3, documents.size()}).add<std::int32_t>({3, 2, 4});
  bytes.add<std::int64_t>({0, 3 * item, 5 * item});
  for (const std::int64_t document : documents) {
    bytes.add<std::int64_t>({document});
  }
  return bytes.str();
}

TEST_F(BinaryFiles, MegatronPairsKeepTheirDocuments) {
  write("a.bin", Bytes().add<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}).str());
  write("a.idx", index_of(8, 2));
  write("b.bin", Bytes().add<std::int32_t>({1, 2, 3, 4, 5, 6, 7, 8, -9}).str());
  write("b.idx", index_of(4, 4) + std::string(3, '\0'));  // modes, as in multimodal sets
  for (const char* name : {"a", "a.idx", "a.bin"}) {
    const auto store = open_megatron((folder_ / name).string());
    EXPECT_EQ(all(*store), (Ids{1, 2, 3, 4, 5, 6, 7, 8, 9}));
    EXPECT_THAT(store->document_starts(), ElementsAre(0, 5, 9));
  }
  EXPECT_EQ(all(*open_megatron((folder_ / "b").string())).back(), -1) << "no id, and stays none";
}

// Two documents of five and four tokens, an empty one between them and one at the end: nothing of
// it shows, padded or packed.
TEST_F(BinaryFiles, EmptyDocumentsAreNone) {
  write("e.bin", Bytes().add<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}).str());
  write("whole.bin", Bytes().add<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}).str());
  write("e.idx", index_of(8, 2, {0, 2, 2, 3, 3}));
  write("whole.idx", index_of(8, 2, {0, 2, 3}));
  for (const Documents documents : {Documents::kPadded, Documents::kPacked}) {
    for (const std::int64_t seq_len : {1, 2, 4}) {
      std::vector<std::string> rows;
      for (const char* name : {"e", "whole"}) {
        Config config = testing::text_config((folder_ / name).string(), seq_len);
        config.data.format = DataFormat::kMegatron;
        config.data.documents = documents;
        const auto source = make_data_source(config, Layout{});
        std::string text;
        for (std::int64_t c = 0; c < 8; ++c) {
          text += testing::rows_as_text(source->fetch_step(c)[0]);
        }
        rows.push_back(text);
      }
      EXPECT_EQ(rows[0], rows[1]) << seq_len;
    }
  }
}

TEST_F(BinaryFiles, ABrokenMegatronPairIsRefusedInWords) {
  const std::string good = index_of(8, 2);
  const auto says = [&](const std::string& index, std::size_t bytes = 18) {
    write("x.bin", std::string(bytes, '\0'));
    write("x.idx", index);
    return refusal([&] { open_megatron((folder_ / "x").string()); });
  };
  const auto changed = [&](std::size_t at, char value) {
    std::string index = good;
    index[at] = value;
    return index;
  };
  EXPECT_EQ(says(good), "");
  EXPECT_THAT(says(changed(0, 'X')), HasSubstr("MMIDIDX"));
  EXPECT_THAT(says(changed(9, 2)), HasSubstr("has version 2"));
  EXPECT_THAT(says(changed(17, 7)), HasSubstr("type 7 (floating-point numbers)"));
  EXPECT_THAT(says(changed(17, 9)), HasSubstr("type 9, not 1 to 5 or 8"));
  EXPECT_THAT(says(changed(18, 4)), HasSubstr("4 sequences and 3 document boundaries take 106"));
  EXPECT_THAT(says(changed(25, 0x7f)),
              HasSubstr("sequences and 3 document boundaries, and has 94"));
  EXPECT_THAT(says(good.substr(0, 90)), HasSubstr("has 90 bytes where"));
  EXPECT_THAT(says(good, 17), HasSubstr("has 17 bytes, and its index names 9 tokens in 18"));
  EXPECT_THAT(says(changed(46 + 8, 7)), HasSubstr("places sequence 1 of 2 tokens at byte 7"));
  EXPECT_THAT(says(index_of(8, 2, {0, 2, 2})), HasSubstr("ends its last document at sequence 2"));
  EXPECT_THAT(says(index_of(8, 2, {0, 3, 2})), HasSubstr("document 2 begins at sequence 2"));
  EXPECT_THAT(says(index_of(8, 2, {1, 2, 3})), HasSubstr("document 0 begins at sequence 1"));
  EXPECT_THAT(says(index_of(8, 2, {3})), HasSubstr("holds no documents"));
  fs::remove(folder_ / "x.bin");
  EXPECT_THAT(refusal([&] { open_megatron((folder_ / "x").string()); }),
              HasSubstr("x.bin' cannot be opened"));
}

std::string npy(int version, const std::string& descr, const std::string& shape,
                const std::string& data, const std::string& order = "False") {
  std::string header =
      "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header += std::string(20, ' ') + "\n";
  Bytes bytes;
  bytes.text("\x93NUMPY").add<std::uint8_t>({static_cast<std::uint8_t>(version), 0});
  if (version == 1) {
    bytes.add<std::uint16_t>({static_cast<std::uint16_t>(header.size())});
  } else {
    bytes.add<std::uint32_t>({static_cast<std::uint32_t>(header.size())});
  }
  return bytes.text(header).text(data).str();
}

TEST_F(BinaryFiles, NumpyArraysOfEveryIntegerTypeAndByteOrderAreRead) {
  const auto read = [&](const std::string& bytes) { return all(*open_npy(write("x.npy", bytes))); };
  const Ids expected = {1, 2, 300};
  for (const int version : {1, 2, 3}) {
    EXPECT_EQ(read(npy(version, "'<u2'", "(3,)", Bytes().add<std::uint16_t>({1, 2, 300}).str())),
              expected);
  }
  EXPECT_EQ(read(npy(1, "'<i8'", "(3,)", Bytes().add<std::int64_t>({1, 2, 300}).str())), expected);
  EXPECT_EQ(read(npy(1, "'>i4'", "(3,)", std::string("\0\0\0\1\0\0\0\2\0\0\1\x2c", 12), "True")),
            expected);
  EXPECT_EQ(read(npy(1, "'|u1'", "(2, )", "\1\2")), (Ids{1, 2}));
  EXPECT_EQ(
      read(npy(1, "'<i8'", "(2,)", Bytes().add<std::int64_t>({-5, std::int64_t{1} << 40}).str())),
      (Ids{-1, -1}))
      << "no ids, and stay none";
}

// Padding of any length is legal; a long header that is none is no crash.
TEST_F(BinaryFiles, LongNumpyHeadersAreReadOrRefused) {
  const auto with = [&](const std::string& header) {
    return Bytes()
        .text("\x93NUMPY")
        .add<std::uint8_t>({1, 0})
        .add<std::uint16_t>({static_cast<std::uint16_t>(header.size())})
        .text(header)
        .add<std::uint16_t>({1, 2})
        .str();
  };
  const std::string good = "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }";
  const std::string padded = write("x.npy", with(good + std::string(60000, ' ') + "\n"));
  EXPECT_EQ(all(*open_npy(padded)), (Ids{1, 2}));
  const std::string hostile = write("y.npy", with("{'descr': " + std::string(60000, '(') + "}"));
  EXPECT_THAT(refusal([&] { open_npy(hostile); }), HasSubstr("y.npy"));
  // A search that goes back took 3 s for 400 blanks, and the cube of that for more.
  const std::string blanks =
      write("z.npy", with(good.substr(0, good.size() - 3) + std::string(900, ' ') + "x"));
  EXPECT_THAT(refusal([&] { open_npy(blanks); }), HasSubstr("header that is not"));
}

TEST_F(BinaryFiles, ABrokenNumpyFileIsRefusedInWords) {
  const auto says = [&](const std::string& bytes) {
    const std::string path = write("x.npy", bytes);
    return refusal([&] { open_npy(path); });
  };
  const std::string two = Bytes().add<std::uint16_t>({1, 2}).str();
  EXPECT_EQ(says(npy(1, "'<u2'", "(2,)", two)), "");
  EXPECT_THAT(says("no numpy here"), HasSubstr("\\x93NUMPY"));
  EXPECT_THAT(says("\x93NUM"), HasSubstr("\\x93NUMPY"));
  EXPECT_THAT(says(npy(4, "'<u2'", "(2,)", two)), HasSubstr("format 4.0"));
  EXPECT_THAT(says(npy(1, "'<f4'", "(1,)", two)), HasSubstr("type '<f4'; tokens are integers"));
  EXPECT_THAT(says(npy(1, "'|O'", "(1,)", two)), HasSubstr("type '|O'"));
  EXPECT_THAT(says(npy(1, "'<u2'", "(2, 1)", two)), HasSubstr("has shape (2, 1)"));
  EXPECT_THAT(says(npy(1, "'<u2'", "()", two)), HasSubstr("has shape ()"));
  EXPECT_THAT(says(npy(1, "'<u2'", "(3,)", two)), HasSubstr("3 numbers of 2 bytes, and 4 bytes"));
  EXPECT_THAT(says(npy(1, "'<u2'", "(999999999999999999,)", two)), HasSubstr("999999999999999999"));
  EXPECT_THAT(says(npy(1, "'<u2'", "(0,)", "")), HasSubstr("holds 0 numbers"));
  EXPECT_THAT(says(npy(1, "'<u2'", "(2,)", two).substr(0, 30)), HasSubstr("has 30 in all"));
  EXPECT_THAT(says(npy(2, "import os", "", two)), HasSubstr("header that is not"));
}

// Spaces, commas and parentheses where they do not belong.
TEST_F(BinaryFiles, AGarbledNumpyHeaderIsRefusedInWords) {
  const auto says = [&](const std::string& descr, const std::string& shape) {
    const std::string path = write("x.npy", npy(1, descr, shape, "1234"));
    return refusal([&] { open_npy(path); });
  };
  EXPECT_THAT(says(std::string(900, ' ') + "x", "(2,"), HasSubstr("header that is not"));
  EXPECT_THAT(says("'<u2' " + std::string(400, ','), "(2,)"), HasSubstr("header that is not"));
  EXPECT_THAT(says("'<u2'", "(2" + std::string(900, ' ') + "x)"), HasSubstr("has shape (2 "));
  EXPECT_EQ(says("  '<u2'  ", " ( 2 , ) "), "");
}

TEST_F(BinaryFiles, RawTokensAreTwoBytesEach) {
  const std::string path = write("x.bin", Bytes().add<std::uint16_t>({7, 65535, 0}).str());
  EXPECT_EQ(all(*open_raw_u16(path)), (Ids{7, 65535, 0}));
  const std::string odd = write("odd.bin", "123");
  EXPECT_THAT(refusal([&] { open_raw_u16(odd); }), HasSubstr("has 3 bytes, an odd number"));
  const std::string shard = write("shard.bin", llmc(20240520, 1, 3, "123456"));
  EXPECT_THAT(refusal([&] { open_raw_u16(shard); }), HasSubstr("data.format: llmc"));
}

// B13: an id outside the vocabulary is named with its file and byte.
TEST_F(BinaryFiles, AnIdOutsideTheVocabularyIsNamedWithItsPlace) {
  std::string tokens;
  for (std::uint16_t i = 0; i < 40; ++i) {
    tokens += Bytes().add<std::uint16_t>({static_cast<std::uint16_t>(i == 17 ? 999 : i)}).str();
  }
  Config config = testing::text_config(write("x.bin", tokens), 8);
  config.data.format = DataFormat::kRawU16;
  config.data.documents = Documents::kPacked;
  config.model.vocab_size = 64;
  const auto source = make_data_source(config, Layout{});
  EXPECT_THAT(refusal([&] {
                for (std::int64_t c = 0; c < 4; ++c) {
                  source->fetch_step(c);
                }
              }),
              AllOf(HasSubstr("x.bin token 17 (byte 34): token 999 is not in [0, model.vocab_size"),
                    HasSubstr("64")));
}

}  // namespace
}  // namespace tandem
