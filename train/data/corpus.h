// Documents cut into samples, in a part to train on and a part held out. This is where `padded` and
// `packed` differ; formats below and batches above know neither.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/data/token_store.h"

namespace tandem {

enum class Split { kTrain, kHeldOut };

/// One sample: up to seq_len + 1 tokens, each but the last predicting the next.
struct Sample {
  explicit Sample(std::int64_t seq_len);

  std::vector<std::int32_t> tokens;
  /// For each token, the first token of the sample that its history may reach back to.
  std::vector<std::int32_t> history_start;
};

/// Held out are the last round(valid_fraction * documents) documents, at least one if the fraction
/// is not zero and there are two or more documents; at least one document is trained on.
///
/// With T = seq_len: padded: the samples of a document of L tokens start at its tokens 0, T, 2T ...
/// as long as a target is left, so that they overlap by one token and every token but the first is
/// a target once; history starts anew with each sample. Packed: sample i of a part holds tokens
/// [i*T, i*T + T] of its joined documents; history stops at the start of the sample and of the
/// document, while the first token of a document is a target like any other. A last packed sample
/// that would be short is held-out data only: every training sample is full.
class Corpus {
 public:
  /// Throws DataError if the train part gives no sample.
  Corpus(std::unique_ptr<TokenStore> store, const DataConfig& config, std::int64_t vocab_size);

  std::int64_t samples(Split split) const { return part(split).samples; }
  /// Replaces the contents of `sample`. Throws DataError with the place of a token that is not in
  /// [0, vocab_size).
  void read(Split split, std::int64_t index, Sample& sample) const;
  /// "text data/kjv.txt: 31102 documents, 4.2 M tokens, 29902 samples, 1655 held out"
  std::string describe() const;

 private:
  struct Part {
    std::int64_t first_document = 0, last_document = 0;  ///< [first, last)
    std::int64_t samples = 0;
  };

  const Part& part(Split split) const { return split == Split::kTrain ? train_ : held_out_; }
  std::int64_t count_padded(const Part& part) const;
  std::int64_t packed_targets(const Part& part) const;
  void read_padded(const Part& part, std::int64_t index, Sample& sample) const;
  void read_packed(const Part& part, std::int64_t index, Sample& sample) const;
  void read_tokens(std::int64_t begin, std::int64_t count, Sample& sample) const;
  [[noreturn]] void refuse_no_samples() const;

  std::unique_ptr<TokenStore> store_;
  DataConfig config_;
  std::int64_t vocab_size_;
  std::span<const std::int64_t> starts_;
  std::vector<std::int64_t> first_sample_;  ///< padded: [documents + 1], over both parts
  Part train_, held_out_;
};

}  // namespace tandem
