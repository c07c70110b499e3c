// Plain text: each byte is a token, each line with its newline a document. Nothing is decoded or
// stripped: carriage returns and multi-byte characters are bytes like any other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/data/data_file.h"
#include "train/data/token_store.h"

namespace tandem {

class TextTokens final : public TokenStore {
 public:
  /// Scans the file once. Throws DataError if it cannot be read, is empty, or holds a byte that is
  /// not below `vocab_size`.
  TextTokens(const std::string& path, std::int64_t vocab_size);

  std::span<const std::int64_t> document_starts() const override { return starts_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  std::string name() const override { return "text " + file_.path(); }
  std::string place(std::int64_t index) const override;

 private:
  DataFile file_;
  std::vector<std::int64_t> starts_;
};

}  // namespace tandem
