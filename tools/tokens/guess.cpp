#include "tools/tokens/guess.h"

#include <glob.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "train/data/data_file.h"
#include "train/data/llmc_format.h"

namespace tandem {
namespace {

constexpr std::int64_t kLooked = 1 << 16;

std::string first_match(const std::string& pattern) {
  glob_t found{};
  const std::string path =
      ::glob(pattern.c_str(), 0, nullptr, &found) == 0 ? found.gl_pathv[0] : pattern;
  ::globfree(&found);
  return path;
}

bool begins_with(const std::vector<unsigned char>& bytes, const char* magic, std::size_t size) {
  return bytes.size() >= size && std::memcmp(bytes.data(), magic, size) == 0;
}

/// Text has no control characters but white space; bytes of any encoding may follow 127.
bool looks_like_text(const std::vector<unsigned char>& bytes) {
  return std::none_of(bytes.begin(), bytes.end(),
                      [](unsigned char byte) { return byte < 32 && (byte < '\t' || byte > '\r'); });
}

}  // namespace

DataFormat guess_format(const std::string& path) {
  if (!std::filesystem::exists(path) && std::filesystem::exists(path + ".idx")) {
    return DataFormat::kMegatron;
  }
  const DataFile file(first_match(path));
  std::vector<unsigned char> bytes(static_cast<std::size_t>(std::min(file.size(), kLooked)));
  file.read(0, bytes);
  if (begins_with(bytes, "\x93NUMPY", 6)) {
    return DataFormat::kNpy;
  }
  if (begins_with(bytes, "MMIDIDX\0\0", 9)) {
    return DataFormat::kMegatron;
  }
  std::int32_t magic = 0;
  std::memcpy(&magic, bytes.data(), std::min(bytes.size(), sizeof magic));
  if (magic == kLlmcGpt2.magic || magic == kLlmcLlama3.magic || magic == kLlmcEvaluation) {
    return DataFormat::kLlmc;
  }
  if (path.ends_with(".bin") && std::filesystem::exists(path.substr(0, path.size() - 4) + ".idx")) {
    return DataFormat::kMegatron;
  }
  if (looks_like_text(bytes)) {
    return DataFormat::kText;
  }
  throw DataError("'" + file.path() +
                  "' begins with no format's magic number and is no text: if it holds bare 16-bit "
                  "tokens, as nanoGPT writes them, write --format raw_u16");
}

}  // namespace tandem
