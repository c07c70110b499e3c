#include "parallel/ledger.h"

#include <algorithm>

namespace tandem {

std::string_view name_of(Collective op) {
  switch (op) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string_view name_of(JobPhase phase) {
  constexpr std::array<std::string_view, 3> kNames = {"other", "step", "evaluation"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::uint64_t traffic_bytes(Collective op, DType dtype, std::int64_t count, int ranks) {
  const bool of_shards = op == Collective::kAllGather || op == Collective::kReduceScatter;
  return static_cast<std::uint64_t>(count) * size_of(dtype) *
         static_cast<std::uint64_t>(of_shards ? ranks : 1);
}

double sent_bytes(Collective op, double bytes, int ranks) {
  switch (op) {
    case Collective::kAllReduce:
      return bytes * 2.0 * (ranks - 1) / ranks;
    case Collective::kBroadcast:
      return bytes * (ranks - 1);
    default:
      return bytes * (ranks - 1) / ranks;
  }
}

Label::Label(std::string_view text) {
  length_ = static_cast<std::uint8_t>(std::min(text.size(), text_.size()));
  std::copy_n(text.data(), length_, text_.data());
}

std::string LedgerEntry::to_string() const {
  std::string text(group.view());
  text.append("#").append(std::to_string(sequence)).append(" ").append(name_of(op));
  if (op != Collective::kBarrier) {
    text.append(" ").append(name_of(dtype)).append(" x ").append(std::to_string(count));
  }
  if (!label.view().empty()) {
    text.append(" `").append(label.view()).append("`");
  }
  return text;
}

Ledger::Ledger(std::size_t kept) : ring_(kept) {
  ensure(kept > 0, "a ledger keeps at least one entry");
}

Ledger::LineNumber Ledger::add(const LedgerEntry& entry, int ranks) {
  ring_[total_ % ring_.size()] = entry;
  ++total_;
  ++calls_[static_cast<std::size_t>(entry.op)];
  const TrafficKey key = {entry.group, entry.label, entry.op, entry.dtype, ranks, phase_};
  const auto [at, is_new] = numbers_.try_emplace(key, lines_.size());
  if (is_new) {
    lines_.push_back({.traffic = {.key = key}});
  }
  Traffic& traffic = lines_[at->second].traffic;
  const std::uint64_t bytes = traffic_bytes(entry.op, entry.dtype, entry.count, ranks);
  ++traffic.calls;
  traffic.bytes += bytes;
  bytes_ += bytes;
  return at->second;
}

void Ledger::add_time(LineNumber line, double seconds, double exposed_seconds) {
  lines_[line].seconds += seconds;
  lines_[line].exposed_seconds += exposed_seconds;
  seconds_ += seconds;
  exposed_seconds_ += exposed_seconds;
}

std::size_t Ledger::Hash::operator()(const TrafficKey& key) const {
  const std::hash<std::string_view> hash;
  const auto rest = static_cast<std::size_t>(key.op) | static_cast<std::size_t>(key.dtype) << 8 |
                    static_cast<std::size_t>(key.phase) << 16;
  return hash(key.label.view()) ^ (hash(key.group.view()) * 31) ^ (rest << 40);
}

std::vector<LedgerEntry> Ledger::recent() const {
  std::vector<LedgerEntry> entries;
  const std::uint64_t kept = std::min<std::uint64_t>(total_, ring_.size());
  entries.reserve(kept);
  for (std::uint64_t i = total_ - kept; i < total_; ++i) {
    entries.push_back(ring_[i % ring_.size()]);
  }
  return entries;
}

}  // namespace tandem
