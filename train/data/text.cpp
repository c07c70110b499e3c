#include "train/data/text.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"

namespace tandem {
namespace {

constexpr std::int64_t kScanBytes = 1 << 20;
constexpr std::int64_t kReadBytes = 4096;

}  // namespace

TextTokens::TextTokens(const std::string& path, std::int64_t vocab_size) : file_(path) {
  std::vector<unsigned char> chunk(static_cast<std::size_t>(std::min(kScanBytes, file_.size())));
  int largest = -1;
  std::int64_t largest_at = 0;
  starts_.push_back(0);
  for (std::int64_t offset = 0; offset < file_.size(); offset += kScanBytes) {
    const std::span bytes(chunk.data(),
                          static_cast<std::size_t>(std::min(kScanBytes, file_.size() - offset)));
    file_.read(offset, bytes);
    unsigned char top = 0;
    for (const unsigned char byte : bytes) {
      top = std::max(top, byte);
    }
    if (top > largest) {
      largest = top;
      largest_at = offset + (std::find(bytes.begin(), bytes.end(), top) - bytes.begin());
    }
    const unsigned char* const end = bytes.data() + bytes.size();
    for (const unsigned char* from = bytes.data(); from < end;) {
      const auto* newline = static_cast<const unsigned char*>(
          std::memchr(from, '\n', static_cast<std::size_t>(end - from)));
      if (newline == nullptr) {
        break;
      }
      from = newline + 1;
      starts_.push_back(offset + (from - bytes.data()));
    }
  }
  if (starts_.back() != file_.size()) {
    starts_.push_back(file_.size());  // a last line without its newline
  }
  if (largest >= vocab_size) {
    throw DataError("model.vocab_size: " + std::to_string(vocab_size) + " is too small for '" +
                    path + "': the byte at " + place(largest_at) + " is " +
                    std::to_string(largest) + "; use at least " + std::to_string(largest + 1) +
                    " (256 holds any text)");
  }
}

void TextTokens::read(std::int64_t begin, std::span<std::int32_t> out) const {
  std::array<unsigned char, kReadBytes> bytes;
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), bytes.size());
    file_.read(begin, std::span(bytes).first(count));
    std::copy_n(bytes.begin(), count, out.begin());
    out = out.subspan(count);
    begin += static_cast<std::int64_t>(count);
  }
}

std::string TextTokens::place(std::int64_t index) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), index);
  const std::int64_t line = after - starts_.begin();
  return file_.path() + ":" + std::to_string(line) + ":" +
         std::to_string(index - *(after - 1) + 1) + " (byte " + std::to_string(index) + ")";
}

}  // namespace tandem
