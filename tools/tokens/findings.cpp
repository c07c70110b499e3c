#include "tools/tokens/findings.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {
namespace {

constexpr std::int64_t kChunk = 1 << 16;
constexpr std::int64_t kShown = 16;
/// Fewer tokens than that are no ground for a doubt about their width.
constexpr std::int64_t kEnough = 64;

struct Counts {
  std::int64_t odd_not_zero = 0;  ///< second, fourth, ... token
  std::int64_t carriage_returns = 0;
  std::int64_t idle = 0;  ///< documents without a target
};

void measure_documents(std::span<const std::int64_t> starts, Findings& found, Counts& counts) {
  found.documents = std::ssize(starts) - 1;
  found.shortest = found.tokens;
  for (std::size_t i = 1; i < starts.size(); ++i) {
    const std::int64_t length = starts[i] - starts[i - 1];
    found.shortest = std::min(found.shortest, length);
    found.longest = std::max(found.longest, length);
    counts.idle += length < 2;
  }
}

void add_doubts(const Counts& counts, DataFormat format, Findings& found) {
  if (format == DataFormat::kRawU16 && found.tokens >= kEnough && counts.odd_not_zero == 0 &&
      found.most > 0) {
    found.doubts.push_back(
        "every second token is 0: these are probably 32-bit tokens. Save them with a header, as "
        "npy or llmc");
  }
  if (found.no_ids == 0 && found.tokens > 1 && found.least == found.most) {
    found.doubts.push_back(fmt::format("every token is {}", found.least));
  }
  if (format == DataFormat::kText && counts.carriage_returns > 0) {
    found.doubts.push_back(
        fmt::format("{} carriage returns are tokens like any other: tr -d '\\r' removes them",
                    counts.carriage_returns));
  }
  if (counts.idle > 0) {
    found.doubts.push_back(
        fmt::format("{} documents have fewer than 2 tokens: as documents of their own they have "
                    "nothing to predict",
                    counts.idle));
  }
}

}  // namespace

Findings find_out(const TokenStore& store, DataFormat format) {
  const auto starts = store.document_starts();
  Findings found{.tokens = starts.back(), .least = INT32_MAX, .most = -1};
  Counts counts;
  if (format == DataFormat::kText || format == DataFormat::kMegatron) {
    measure_documents(starts, found, counts);
  }
  std::vector<std::int32_t> chunk(static_cast<std::size_t>(std::min(kChunk, found.tokens)));
  for (std::int64_t begin = 0; begin < found.tokens; begin += kChunk) {
    chunk.resize(static_cast<std::size_t>(std::min(kChunk, found.tokens - begin)));
    store.read(begin, chunk);
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      const std::int32_t id = chunk[i];
      if (id < 0) {
        if (++found.no_ids == 1) {
          found.first_no_id = begin + static_cast<std::int64_t>(i);
        }
        continue;
      }
      found.least = std::min(found.least, id);
      found.most = std::max(found.most, id);
      counts.odd_not_zero += i % 2 == 1 && id != 0;  // chunks begin at even places
      counts.carriage_returns += id == '\r';
    }
    if (begin == 0) {
      found.first.assign(chunk.begin(),
                         chunk.begin() + std::min(std::ssize(chunk), std::ptrdiff_t{kShown}));
    }
  }
  if (found.most < 0) {
    found.least = found.most = 0;
  }
  add_doubts(counts, format, found);
  return found;
}

}  // namespace tandem
