// What the data tests share: a temporary file with given bytes, and a config that reads it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/layout.h"
#include "train/config.h"
#include "train/data/source.h"

namespace tandem::testing {

/// A file that lives as long as this object.
class TextFile {
 public:
  explicit TextFile(std::string_view bytes);
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  ~TextFile();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// mlp_lm on `path`: context 3, nothing shuffled, nothing held out, padded documents.
Config text_config(const std::string& path, std::int64_t seq_len);

/// Sample number and position of a row, from its key.
std::vector<std::int64_t> samples_of(const MicroBatch& batch, std::int64_t seq_len);

/// The rows with a target, one text line each: "key: history -> target", history as characters with
/// the newest last and '.' for none, a newline as '/'.
std::string rows_as_text(const MicroBatch& batch);

}  // namespace tandem::testing
