// Writes tokens as a llm.c shard, which opens at once whatever its size and is read by others.
#pragma once

#include <cstdint>
#include <filesystem>

#include "train/data/llmc_format.h"
#include "train/data/token_store.h"

namespace tandem {

/// 16-bit tokens where `most`, the largest id, fits, else 32-bit.
const LlmcKind& shard_kind(std::int32_t most);

/// Every token of `store`, all of which are ids of at most `most`, in order; documents are not
/// marked, as the format has no place for it. Written beside and renamed: what stood at `path`
/// stays whole until then. Throws DataError if there are more tokens than a shard can count
/// (2^31 - 1), or with the system's words.
void write_shard(const TokenStore& store, std::int32_t most, const std::filesystem::path& path);

}  // namespace tandem
