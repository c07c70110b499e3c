// Tokens one after another, and where documents start among them: all that a data format has to
// provide. Cutting them into samples is the corpus's work and the same for every format.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tandem {

/// A format opens and checks its files when it is constructed, so that a run fails before it has
/// left anything behind. Reading allocates nothing.
class TokenStore {
 public:
  virtual ~TokenStore() = default;

  /// Start of each document, ascending from 0, then the number of tokens: [documents + 1].
  virtual std::span<const std::int64_t> document_starts() const = 0;
  /// Tokens [begin, begin + out.size()) of the joined documents. Throws DataError if they can no
  /// longer be read.
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;

  /// What an error or the start-up table calls it: "text data/kjv.txt".
  virtual std::string name() const = 0;
  /// Where token `index` stands, as a user would look for it: "data/kjv.txt:17:3 (byte 2041)".
  virtual std::string place(std::int64_t index) const = 0;
};

}  // namespace tandem
