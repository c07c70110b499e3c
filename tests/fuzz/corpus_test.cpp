// The seeds of every fuzz target and what a fuzzer once found, without a fuzzer.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/targets.h"

namespace tandem::fuzz {
namespace {

class Corpus : public testing::TestWithParam<Target> {};

TEST_P(Corpus, IsTakenOrRefusedInWords) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(
           std::filesystem::path(TANDEM_SOURCE_DIR "/tests/fuzz/corpus") / GetParam().name)) {
    std::ifstream in(file.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    SCOPED_TRACE(file.path().string());
    EXPECT_NO_THROW(
        GetParam().take({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}));
    ++files;
  }
  EXPECT_GE(files, 2) << "seeds and findings lie in tests/fuzz/corpus";
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, testing::ValuesIn(kTargets),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace tandem::fuzz
