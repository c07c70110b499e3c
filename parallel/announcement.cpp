#include "parallel/announcement.h"

#include <bit>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace tandem {

static_assert(std::is_trivially_copyable_v<Announcement>);

namespace {

/// Two multiply-and-rotate hashes side by side, eight bytes at a time.
class Mixer {
 public:
  void add(std::uint64_t word) {
    low_ = std::rotl((low_ ^ word) * 0x9E3779B97F4A7C15ull, 29);
    high_ = std::rotl((high_ + word) * 0xC2B2AE3D27D4EB4Full, 37) ^ low_;
  }
  void add(std::string_view text) {
    add(text.size());
    while (!text.empty()) {
      std::uint64_t word = 0;
      const std::size_t part = text.size() < sizeof word ? text.size() : sizeof word;
      std::memcpy(&word, text.data(), part);
      add(word);
      text.remove_prefix(part);
    }
  }
  Digest result() const { return {finish(low_), finish(high_)}; }

 private:
  static std::uint64_t finish(std::uint64_t word) {
    word = (word ^ word >> 31) * 0x7FB5D329728EA185ull;
    return word ^ word >> 27;
  }

  std::uint64_t low_ = 0x243F6A8885A308D3ull;
  std::uint64_t high_ = 0x13198A2E03707344ull;
};

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "?";
}

bool reduces(Collective op) {
  return op == Collective::kAllReduce || op == Collective::kReduceScatter;
}

}  // namespace

Digest digest_of(const Announcement& call) {
  const LedgerEntry& entry = call.entry;
  Mixer mixer;
  mixer.add(entry.sequence);
  mixer.add(static_cast<std::uint64_t>(entry.op) | static_cast<std::uint64_t>(entry.dtype) << 8 |
            static_cast<std::uint64_t>(call.reduce) << 16 |
            static_cast<std::uint64_t>(call.root) << 32);
  mixer.add(entry.op == Collective::kAllToAll ? 0 : static_cast<std::uint64_t>(entry.count));
  mixer.add(entry.group.view());
  mixer.add(entry.label.view());
  return mixer.result();
}

std::string to_string(const Announcement& call) {
  const LedgerEntry& entry = call.entry;
  std::string text(entry.group.view());
  text.append("#").append(std::to_string(entry.sequence)).append(" ").append(name_of(entry.op));
  if (entry.op != Collective::kBarrier) {
    text.append(" ").append(name_of(entry.dtype));
    text +=
        call.shape.rank() > 1 ? " " + call.shape.to_string() : " x " + std::to_string(entry.count);
  }
  if (reduces(entry.op) && call.reduce != ReduceOp::kSum) {
    text.append(" (").append(name_of(call.reduce)).append(")");
  } else if (entry.op == Collective::kBroadcast) {
    text.append(" from group rank ").append(std::to_string(call.root));
  }
  if (!entry.label.view().empty()) {
    text.append(" `").append(entry.label.view()).append("`");
  }
  return text;
}

}  // namespace tandem
