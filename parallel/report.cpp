#include "parallel/report.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace tandem {

std::string to_string(std::span<const int> ranks) {
  std::string text = "{";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text + "}";
}

std::string abandoned(int rank, int size, const std::string& why) {
  return size == 1 ? why : "rank " + std::to_string(rank) + ": " + why;
}

Disagreement disagreement(std::span<const int> ranks, std::span<const Announcement> calls) {
  struct Opinion {
    std::vector<std::size_t> of;
  };
  std::vector<Opinion> opinions;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto same = std::find_if(opinions.begin(), opinions.end(), [&](const Opinion& opinion) {
      return agree(calls[opinion.of[0]], calls[i]);
    });
    (same == opinions.end() ? opinions.emplace_back() : *same).of.push_back(i);
  }
  std::stable_sort(opinions.begin(), opinions.end(),
                   [](const Opinion& a, const Opinion& b) { return a.of.size() > b.of.size(); });
  const bool tie = opinions.size() > 1 && opinions[0].of.size() == opinions[1].of.size();
  Disagreement result;
  for (const Opinion& opinion : opinions) {
    result.sides.push_back(ranks[opinion.of[0]]);
    for (const std::size_t i : opinion.of) {
      if (tie || &opinion != opinions.data()) {
        result.ranks.push_back(ranks[i]);
      }
    }
  }
  std::sort(result.ranks.begin(), result.ranks.end());
  result.text = "the ranks of group " + std::string(calls[0].entry.group.view()) + " " +
                to_string(ranks) + " do not call the same collective:";
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const bool differs =
        !tie && std::find(result.ranks.begin(), result.ranks.end(), ranks[i]) != result.ranks.end();
    result.text += "\n  rank " + std::to_string(ranks[i]) + ": " + to_string(calls[i]) +
                   (differs ? "  <- differs" : "");
  }
  return result;
}

std::string not_complete(const LedgerEntry& entry, std::span<const int> ranks, double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", seconds);
  return entry.to_string() + " in group " + std::string(entry.group.view()) + " " +
         to_string(ranks) + ": not complete after " + text +
         " s on the device; a rank is stalled or gone";
}

std::string encode(const Alarm& alarm) {
  const std::size_t count = alarm.sides.size();
  std::string bytes(sizeof count + count * sizeof(int), '\0');
  std::memcpy(bytes.data(), &count, sizeof count);
  std::memcpy(bytes.data() + sizeof count, alarm.sides.data(), count * sizeof(int));
  return bytes + alarm.text;
}

Alarm decode_alarm(const std::string& bytes) {
  std::size_t count = 0;
  ensure(bytes.size() >= sizeof count, "an alarm is cut short");
  std::memcpy(&count, bytes.data(), sizeof count);
  ensure(count <= (bytes.size() - sizeof count) / sizeof(int), "an alarm is cut short");
  Alarm alarm;
  alarm.sides.resize(count);
  std::memcpy(alarm.sides.data(), bytes.data() + sizeof count, count * sizeof(int));
  alarm.text = bytes.substr(sizeof count + count * sizeof(int));
  return alarm;
}

}  // namespace tandem
