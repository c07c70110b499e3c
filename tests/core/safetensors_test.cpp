// The safetensors format: what is written can be read, and what is wrong with a file is said with
// the file, what was expected and what was found, before anything of the size it claims is
// allocated.
#include "core/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/error.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Safetensors : public testing::Test {
 protected:
  Safetensors()
      : path_(fs::temp_directory_path() /
              ("tandem_safetensors_" + std::to_string(::getpid()) + ".safetensors")) {}
  ~Safetensors() override { fs::remove(path_); }

  /// A file of this header and `data` bytes of tensors; `claimed`: the header length it states.
  void write(const std::string& header, std::size_t data,
             std::optional<std::uint64_t> claimed = std::nullopt) const {
    std::ofstream out(path_, std::ios::binary);
    const std::uint64_t length = claimed.value_or(header.size());
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << std::string(data, '\1');
  }
  std::string refusal() const {
    try {
      const SafetensorsFile file(path_);
      return "";
    } catch (const DataError& error) {
      return error.what();
    }
  }

  fs::path path_;
};

TEST_F(Safetensors, WhatIsWrittenIsRead) {
  const std::vector<float> matrix = {0, 1, 2, 3, 4, 5.5f};
  const std::vector<double> vector = {1e-300, -2};
  const auto bytes = std::as_bytes(std::span(matrix));
  write_safetensors(path_,
                    {{"b", DType::kF32, {2, 3}, {bytes.first(8), bytes.subspan(8)}},
                     {"a", DType::kF64, {2}, {std::as_bytes(std::span(vector))}},
                     {"none", DType::kF32, {0, 3}, {}}},
                    {{"step", "7"}});
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.metadata().at("step"), "7");
  EXPECT_EQ(file.find("b").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file.find("b").begin % 64, 0u) << "tensors start aligned";
  std::vector<double> read(4);
  file.read("b", 2, 4, read.data());
  EXPECT_EQ(read, (std::vector<double>{2, 3, 4, 5.5}));
  file.read("a", 0, 2, read.data());
  EXPECT_EQ(read[0], 1e-300);
  EXPECT_THROW(file.find("c"), DataError);
}

// The sample of the format's page: any order of names, spaces behind the header, scalars.
TEST_F(Safetensors, ReadsOtherWritersFiles) {
  write(
      R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},)"
      R"("step":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"__metadata__":{"format":"pt"}}   )",
      12);
  EXPECT_EQ(refusal(), "");
  const SafetensorsFile file(path_);
  double one[2];
  file.read("w", 0, 2, one);
  EXPECT_EQ(one[0], static_cast<double>(std::bit_cast<BFloat16>(std::uint16_t{0x0101})));
  EXPECT_THROW(file.read("step", 0, 1, one), DataError);
}

TEST_F(Safetensors, ABrokenFileIsRefusedInWords) {
  const std::string name = path_.string();
  struct Broken {
    std::string header;
    std::size_t data;
    std::optional<std::uint64_t> claimed;
    std::string says;
  };
  const std::string one = R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  const Broken cases[] = {
      {one, 20, {}, "tensor 'w' is said to be at bytes 0 to 24, but there are 20 bytes"},
      {one, 28, {}, "has 4 bytes behind its last tensor"},
      {one, 24, 1ull << 40, "says its header has 1099511627776 bytes, but the format allows"},
      {one, 24, 90'000'000, "says its header has 90000000 bytes, but the whole file has"},
      {R"({"w":{"dtype":"F32","shape":[2,4],"data_offsets":[0,24]}})", 24, {}, "does not fill"},
      {R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
       0,
       {},
       "does not fill"},
      {R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}})", 0, {}, "sizes of 0 or more"},
      {R"({"w":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, {}, "dtype 'F31'"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       6,
       {},
       "'b' begins at byte 2, where 4 was expected: ranges overlap"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})",
       10,
       {},
       "leave a gap"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1,
       {},
       "'a' twice"},
      {R"({"a":{"dtype":"U8","shape":[[[[1]]]],"data_offsets":[0,1]}})", 1, {}, "nested deeper"},
      {R"({"a":{"dtype":"U8","shape":[1])", 1, {}, "not JSON"},
      {R"({"a":7})", 0, {}, "the header's entry 'a'"},
      {R"({"__metadata__":{"a":1}})", 0, {}, "not a map of texts"},
      {"[]", 0, {}, "does not begin with '{'"},
      {"", 0, {}, "does not begin with '{'"},
  };
  for (const Broken& broken : cases) {
    write(broken.header, broken.data, broken.claimed);
    EXPECT_THAT(refusal(), AllOf(HasSubstr(name + ": "), HasSubstr(broken.says))) << broken.header;
  }
  std::ofstream(path_) << "1234";
  EXPECT_THAT(refusal(), HasSubstr("has 4 bytes; a safetensors file has at least 8"));
  fs::remove(path_);
  EXPECT_THAT(refusal(), HasSubstr("No such file"));
}

TEST_F(Safetensors, AFileThatCannotBeWrittenSaysWhy) {
  try {
    write_safetensors("/nowhere/w.safetensors", {});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/w.safetensors: cannot be created: No such file"));
  }
  const std::vector<float> much(1 << 16);
  if (fs::exists("/dev/full")) {
    try {
      write_safetensors("/dev/full",
                        {{"w", DType::kF32, {1 << 16}, {std::as_bytes(std::span(much))}}});
      FAIL();
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
    }
  }
}

}  // namespace

}  // namespace tandem
