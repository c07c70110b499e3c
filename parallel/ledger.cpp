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

void Ledger::add(const LedgerEntry& entry) {
  ring_[total_ % ring_.size()] = entry;
  ++total_;
  ++calls_[static_cast<std::size_t>(entry.op)];
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
