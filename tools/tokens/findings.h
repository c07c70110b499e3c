// What a data file holds, found by reading all of it once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/data/token_store.h"

namespace tandem {

struct Findings {
  std::int64_t tokens = 0;
  std::int64_t documents = 0;              ///< 0: the format does not mark them
  std::int64_t shortest = 0, longest = 0;  ///< document, in tokens
  std::int32_t least = 0, most = 0;        ///< id; 0 if there is none
  std::vector<std::int32_t> first;         ///< up to 16 ids
  std::vector<std::string> doubts;         ///< what is legal and probably not meant
  /// Tokens that are no ids (negative or beyond 2^31 - 1), which end a run where it meets them.
  std::int64_t no_ids = 0;
  std::optional<std::int64_t> first_no_id;
};

/// Throws DataError if the file can no longer be read.
Findings find_out(const TokenStore& store, DataFormat format);

}  // namespace tandem
