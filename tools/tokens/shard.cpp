#include "tools/tokens/shard.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::int64_t kChunk = 1 << 16;

template <typename T>
void write_as(std::ofstream& out, const std::vector<std::int32_t>& ids) {
  const std::vector<T> tokens(ids.begin(), ids.end());
  out.write(reinterpret_cast<const char*>(tokens.data()),
            static_cast<std::streamsize>(tokens.size() * sizeof(T)));
}

void write_all(const TokenStore& store, const LlmcKind& kind, std::ofstream& out) {
  const std::int64_t count = store.document_starts().back();
  std::array<std::int32_t, kLlmcHeader / 4> header{kind.magic, kind.version,
                                                   static_cast<std::int32_t>(count)};
  out.write(reinterpret_cast<const char*>(header.data()), sizeof header);
  std::vector<std::int32_t> ids;
  for (std::int64_t begin = 0; begin < count && out; begin += kChunk) {
    ids.resize(static_cast<std::size_t>(std::min(kChunk, count - begin)));
    store.read(begin, ids);
    if (kind.token_bytes == 2) {
      write_as<std::uint16_t>(out, ids);
    } else {
      write_as<std::uint32_t>(out, ids);
    }
  }
  out.flush();
}

}  // namespace

const LlmcKind& shard_kind(std::int32_t most) {
  return most <= UINT16_MAX ? kLlmcGpt2 : kLlmcLlama3;
}

void write_shard(const TokenStore& store, std::int32_t most, const fs::path& path) {
  const std::int64_t count = store.document_starts().back();
  if (count > INT32_MAX) {
    throw DataError(
        fmt::format("{} tokens are more than a llm.c shard can count (2147483647): "
                    "split the text and name the shards by a glob",
                    count));
  }
  const fs::path beside = path.string() + ".unfinished";
  std::error_code problem, ignored;
  errno = 0;
  std::ofstream out(beside, std::ios::binary);
  if (out) {
    try {
      write_all(store, shard_kind(most), out);
    } catch (...) {  // the source can no longer be read
      fs::remove(beside, ignored);
      throw;
    }
  }
  if (!out) {
    problem.assign(errno, std::generic_category());
  }
  out.close();
  if (!problem) {
    fs::rename(beside, path, problem);
  }
  if (problem) {
    fs::remove(beside, ignored);
    throw DataError("--output " + path.string() + ": cannot be written: " + problem.message());
  }
}

}  // namespace tandem
