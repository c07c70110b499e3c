#include "parallel/call_history.h"

#include <algorithm>
#include <bit>

namespace tandem {

namespace {

/// More than the calls of a step between two comparisons.
constexpr std::size_t kKept = 256;

Digest chained(const Digest& before, const Digest& next) {
  return {(std::rotl(before.low, 1) ^ next.low) * 0x9E3779B97F4A7C15ull,
          (std::rotl(before.high, 1) ^ next.high) * 0xC2B2AE3D27D4EB4Full};
}

}  // namespace

void CallHistory::add(const Announcement& call) {
  if (ring_.empty()) {
    ring_.resize(kKept);
  }
  ring_[calls_++ % kKept] = call;
  digest_ = chained(digest_, call.digest);
}

std::optional<Disagreement> CallHistory::compare(Communicator& host) const {
  std::array<std::int64_t, 3> own = {static_cast<std::int64_t>(calls_),
                                     std::bit_cast<std::int64_t>(digest_.low),
                                     std::bit_cast<std::int64_t>(digest_.high)};
  std::vector<std::int64_t> all(own.size() * static_cast<std::size_t>(host.size()));
  host.all_gather(Tensor::of<std::int64_t>(own, {std::ssize(own)}),
                  Tensor::of<std::int64_t>(all, {std::ssize(all)}), {.label = "digest of calls"})
      .wait_host();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != own[i % own.size()]) {
      return first_difference(host);
    }
  }
  return std::nullopt;
}

Disagreement CallHistory::first_difference(Communicator& host) const {
  std::vector<Announcement> own = ring_;
  own.resize(kKept);
  std::vector<Announcement> all(kKept * static_cast<std::size_t>(host.size()));
  const auto bytes = [](std::vector<Announcement>& calls) {
    return Tensor(calls.data(), DType::kU8,
                  {static_cast<std::int64_t>(calls.size() * sizeof(Announcement))});
  };
  std::int64_t calls = static_cast<std::int64_t>(calls_);
  host.all_reduce(Tensor(&calls, DType::kI64, {1}), {.op = ReduceOp::kMin, .label = "fewest calls"})
      .wait_host();
  host.all_gather(bytes(own), bytes(all), {.label = "calls that differ"}).wait_host();
  // The rank with the fewest calls is about to make another: what the others made there is shown
  // against its last.
  const std::uint64_t fewest = static_cast<std::uint64_t>(calls);
  for (std::uint64_t n = fewest > kKept ? fewest - kKept : 0; n <= fewest; ++n) {
    std::vector<int> ranks;
    std::vector<Announcement> made;
    for (int r = 0; r < host.size(); ++r) {
      const Announcement& call = all[static_cast<std::size_t>(r) * kKept + n % kKept];
      if (call.entry.sequence == n && !call.entry.group.view().empty()) {
        ranks.push_back(host.ranks()[static_cast<std::size_t>(r)]);
        made.push_back(call);
      }
    }
    const bool differ = std::any_of(
        made.begin(), made.end(), [&](const Announcement& call) { return !agree(call, made[0]); });
    if (differ) {
      return disagreement(ranks, made);
    }
    if (!made.empty() && static_cast<int>(made.size()) < host.size() && n == fewest) {
      Disagreement some = disagreement(ranks, made);
      some.text = "only the ranks " + to_string(ranks) + " of group " +
                  std::string(made[0].entry.group.view()) + " " + to_string(host.ranks()) +
                  " called " + to_string(made[0]);
      some.ranks.clear();
      for (const int rank : host.ranks()) {
        if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
          some.ranks.push_back(rank);
        }
      }
      some.sides = {ranks[0], some.ranks[0]};
      return some;
    }
  }
  return {.text = "the ranks of group " + host.name() + " " + to_string(host.ranks()) +
                  " called different collectives, longer ago than they remember",
          .ranks = host.ranks(),
          .sides = host.ranks()};
}

}  // namespace tandem
