#include "train/data/synthetic.h"

#include <algorithm>

#include "core/philox.h"

namespace tandem {
namespace {

constexpr std::int64_t kDocuments = 8192;
// Streams of RandomUse::kSynthetic.
constexpr std::uint32_t kLengthStream = 0;
constexpr std::uint32_t kFirstStream = 1;
constexpr std::uint32_t kChainStream = 2;   // which four tokens may follow a token
constexpr std::uint32_t kChoiceStream = 3;  // which of them does, by place in the corpus

PhiloxBlock draw(std::uint64_t seed, std::uint32_t stream, std::int64_t block) {
  return philox_draw(seed, RandomUse::kSynthetic, stream, static_cast<std::uint64_t>(block));
}

/// A draw as a number in [0, bound).
std::int64_t below(std::uint32_t value, std::int64_t bound) {
  return static_cast<std::int64_t>(value % static_cast<std::uint64_t>(bound));
}

}  // namespace

SyntheticTokens::SyntheticTokens(std::uint64_t seed, std::int64_t vocab_size, std::int64_t seq_len)
    : seed_(seed), vocab_size_(vocab_size) {
  const std::int64_t shortest = std::max<std::int64_t>(2, seq_len / 4);
  const std::int64_t longest = std::max(shortest, seq_len + seq_len / 4);
  starts_.reserve(kDocuments + 1);
  starts_.push_back(0);
  for (std::int64_t d = 0; d < kDocuments; ++d) {
    starts_.push_back(starts_.back() + shortest +
                      below(draw(seed_, kLengthStream, d).x[0], longest - shortest + 1));
  }
}

std::int32_t SyntheticTokens::first_token(std::int64_t document) const {
  return static_cast<std::int32_t>(below(draw(seed_, kFirstStream, document).x[0], vocab_size_));
}

std::int32_t SyntheticTokens::successor(std::int32_t token, std::int64_t index) const {
  const std::uint32_t choice = draw(seed_, kChoiceStream, index).x[0] >> 29;
  const std::size_t which = choice < 4 ? 0 : choice < 6 ? 1 : choice < 7 ? 2 : 3;
  return static_cast<std::int32_t>(below(draw(seed_, kChainStream, token).x[which], vocab_size_));
}

void SyntheticTokens::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  auto document = std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin() - 1;
  // A chain is known only from its start, so its document is walked from there.
  for (std::int64_t index = starts_[static_cast<std::size_t>(document)]; index < end; ++document) {
    const std::int64_t document_end =
        std::min(end, starts_[static_cast<std::size_t>(document) + 1]);
    std::int32_t token = first_token(document);
    for (const std::int64_t first = index; index < document_end; ++index) {
      token = index == first ? token : successor(token, index);
      if (index >= begin) {
        out[static_cast<std::size_t>(index - begin)] = token;
      }
    }
  }
}

std::string SyntheticTokens::place(std::int64_t index) const {
  return "synthetic token " + std::to_string(index);
}

}  // namespace tandem
