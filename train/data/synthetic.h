// A corpus that needs no file and can be learnt: documents from a fixed random Markov chain over
// the vocabulary. Any token is a pure function of the seed and its place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/data/token_store.h"

namespace tandem {

/// 8192 documents of max(2, seq_len / 4) to seq_len * 5 / 4 tokens, so that padded samples are
/// short, full and continued. A document starts anywhere in the vocabulary; each token has four
/// successors, taken with probability 1/2, 1/4, 1/8 and 1/8: a model that knows them all still has
/// a loss of about 1.75 ln 2 = 1.21 per token (less where successors coincide), one that knows
/// nothing ln(vocab_size).
class SyntheticTokens final : public TokenStore {
 public:
  SyntheticTokens(std::uint64_t seed, std::int64_t vocab_size, std::int64_t seq_len);

  std::span<const std::int64_t> document_starts() const override { return starts_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  std::string name() const override { return "synthetic"; }
  std::string place(std::int64_t index) const override;

 private:
  std::int32_t first_token(std::int64_t document) const;
  std::int32_t successor(std::int32_t token, std::int64_t index) const;

  std::uint64_t seed_;
  std::int64_t vocab_size_;
  std::vector<std::int64_t> starts_;
};

}  // namespace tandem
