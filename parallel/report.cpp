#include "parallel/report.h"

#include <cstdio>
#include <type_traits>

namespace tandem {

static_assert(std::is_trivially_copyable_v<Announcement>);

namespace {

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

constexpr const char* kRemedy =
    "every rank of a group must call the same collectives (raise parallel.timeout_s if a step can "
    "take this long)";

std::string tenths(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", seconds);
  return text;
}

std::string in_group(const LedgerEntry& entry, std::span<const int> ranks) {
  return entry.to_string() + " in group " + std::string(entry.group.view()) + " " +
         to_string(ranks);
}

std::string describe(const Announcement& call) {
  std::string text = call.entry.to_string();
  if (call.entry.op == Collective::kAllReduce || call.entry.op == Collective::kReduceScatter) {
    text += " (" + std::string(name_of(call.reduce)) + ")";
  } else if (call.entry.op == Collective::kBroadcast) {
    text += " (from group rank " + std::to_string(call.root) + ")";
  }
  return text;
}

}  // namespace

bool agree(const Announcement& a, const Announcement& b) {
  return a.entry.group.view() == b.entry.group.view() && a.entry.sequence == b.entry.sequence &&
         a.entry.op == b.entry.op && a.entry.dtype == b.entry.dtype && a.reduce == b.reduce &&
         a.root == b.root &&
         (a.entry.count == b.entry.count || a.entry.op == Collective::kAllToAll);
}

std::string to_string(std::span<const int> ranks) {
  std::string text = "{";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text + "}";
}

std::string disagreement(std::span<const int> ranks, std::span<const Announcement> calls) {
  std::string text = "the ranks of group " + std::string(calls[0].entry.group.view()) + " " +
                     to_string(ranks) + " do not call the same collective:";
  for (std::size_t i = 0; i < calls.size(); ++i) {
    text += "\n  rank " + std::to_string(ranks[i]) + ": " + describe(calls[i]);
  }
  return text;
}

std::string time_out(const LedgerEntry& entry, std::span<const int> ranks,
                     std::span<const int> missing, double seconds) {
  return in_group(entry, ranks) + ": nothing from rank" + (missing.size() == 1 ? " " : "s ") +
         (missing.size() == 1 ? std::to_string(missing[0]) : to_string(missing)) + " for " +
         tenths(seconds) + " s; " + kRemedy;
}

std::string not_complete(const LedgerEntry& entry, std::span<const int> ranks, double seconds) {
  return in_group(entry, ranks) + ": not complete after " + tenths(seconds) +
         " s on the device; a rank is stalled or gone; " + kRemedy;
}

}  // namespace tandem
