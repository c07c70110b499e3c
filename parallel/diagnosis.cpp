#include "parallel/diagnosis.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

namespace tandem {

namespace {

constexpr double kSlowFactor = 10.0;

std::string tenths(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", seconds);
  return text;
}

/// "rank 3", "ranks 0, 1 and 2"
std::string named(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

std::string of_step(std::span<const RankView> views) {
  std::int64_t step = 0;
  for (const RankView& of : views) {
    step = std::max(step, of.status.step);
  }
  return step > 0 ? "step " + std::to_string(step) + ": " : "";
}

class Judge {
 public:
  Judge(std::span<const RankView> views, const Limits& limits) : views_(views), limits_(limits) {}

  std::optional<Finding> mismatch() const;
  std::optional<Finding> circle() const;
  std::optional<Finding> ended() const;
  /// A rank without a heartbeat where others have ended: they wait for its farewell.
  std::optional<Finding> vanished() const;
  std::optional<Finding> late(Finding::Kind kind) const;
  std::string death(int rank) const;

 private:
  const RankView& view(int rank) const { return views_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(views_.size()); }
  const CallRecord* waiting(int rank) const {
    const RankView& of = view(rank);
    return of.known && !of.died ? of.status.under_way() : nullptr;
  }
  const GroupStatus& group_of(int rank, const CallRecord& record) const {
    return view(rank).status.groups[static_cast<std::size_t>(record.group)];
  }
  double since(int rank, double then) const {
    return view(rank).silent_s + view(rank).status.now - then;
  }
  /// Whether `rank` has entered the call that `waiter` is inside.
  bool has_reached(int rank, int waiter, const CallRecord& record) const;
  /// Members of the call's group that have not reached it; if all have, those that are silent.
  std::vector<int> missing(int waiter, const CallRecord& record) const;
  bool silent(int rank) const { return view(rank).silent_s > limits_.silence_s; }

  std::string in_group(int rank, const CallRecord& record) const;
  /// "its last was tp#123 ..., 3.1 s ago, inside `backward layers.2`"
  std::string whereabouts(int rank) const;
  /// One line for each rank that waits.
  std::string waits() const;
  std::string absence(int rank, const std::string& what, const std::string& call) const;

  std::span<const RankView> views_;
  const Limits& limits_;
};

bool Judge::has_reached(int rank, int waiter, const CallRecord& record) const {
  const GroupStatus& group = group_of(waiter, record);
  for (const GroupStatus& other : view(rank).status.groups) {
    if (other.same_group(group)) {
      return other.calls > record.call.entry.sequence;
    }
  }
  return false;
}

std::vector<int> Judge::missing(int waiter, const CallRecord& record) const {
  std::vector<int> ranks;
  const GroupStatus& group = group_of(waiter, record);
  for (const int rank : group.ranks) {
    if (rank != waiter && !has_reached(rank, waiter, record)) {
      ranks.push_back(rank);
    }
  }
  if (ranks.empty()) {
    std::copy_if(group.ranks.begin(), group.ranks.end(), std::back_inserter(ranks),
                 [&](int rank) { return view(rank).died || silent(rank); });
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string Judge::in_group(int rank, const CallRecord& record) const {
  return to_string(record.call) + " (group " + to_string(group_of(rank, record).ranks) + ")";
}

std::string Judge::whereabouts(int rank) const {
  const RankStatus& status = view(rank).status;
  if (!view(rank).known) {
    return "nothing was ever heard of it";
  }
  std::string text;
  if (const CallRecord* record = waiting(rank)) {
    text = "it is in " + in_group(rank, *record) + " for " + tenths(since(rank, record->entered)) +
           " s";
  } else if (status.last.empty()) {
    text = "it has called nothing yet";
  } else {
    text = "its last was " + to_string(status.last.back().call) + ", " +
           tenths(since(rank, status.last.back().left)) + " s ago";
  }
  if (waiting(rank) == nullptr && !status.inside.empty()) {
    text += ", inside `" + status.inside + "`";
  }
  return text;
}

std::string Judge::absence(int rank, const std::string& what, const std::string& call) const {
  const RankView& of = view(rank);
  std::string text = "rank " + std::to_string(rank) + " " + what + " " + call + "; ";
  if (of.known && of.status.ended) {
    return text + "it has ended";
  }
  text += whereabouts(rank);
  if (!of.died && of.known && silent(rank)) {
    text += "; no heartbeat for " + tenths(of.silent_s) + " s: stopped, or its host cut off?";
  }
  return text;
}

std::string Judge::waits() const {
  // Ranks in the same call share a line.
  std::map<std::string, std::pair<std::vector<int>, double>> lines;
  for (int rank = 0; rank < size(); ++rank) {
    const CallRecord* record = waiting(rank);
    if (record != nullptr && !silent(rank)) {
      auto& [ranks, seconds] = lines[in_group(rank, *record)];
      ranks.push_back(rank);
      seconds = std::max(seconds, since(rank, record->entered));
    }
  }
  std::string text;
  for (const auto& [call, line] : lines) {
    text += "\n  " + named(line.first) + (line.first.size() == 1 ? " waits" : " wait") + " in " +
            call + " for " + tenths(line.second) + " s";
  }
  return text;
}

/// The last calls that two ranks of a group both made, if they were not the same.
std::optional<Finding> Judge::mismatch() const {
  struct First {
    int rank;
    const CallRecord* record;
  };
  using Key = std::pair<std::string, std::uint64_t>;
  std::map<Key, std::vector<First>> calls;
  for (int rank = 0; rank < size(); ++rank) {
    if (!view(rank).known) {
      continue;
    }
    for (const CallRecord& record : view(rank).status.last) {
      const GroupStatus& group = group_of(rank, record);
      Key key{group.name + to_string(group.ranks) + "/" + std::to_string(group.instance),
              record.call.entry.sequence};
      calls[std::move(key)].push_back({rank, &record});
    }
  }
  const std::pair<const Key, std::vector<First>>* found = nullptr;
  for (const auto& entry : calls) {
    const auto& made = entry.second;
    const bool differ = std::any_of(made.begin(), made.end(), [&](const First& other) {
      return !agree(made[0].record->call, other.record->call);
    });
    if (differ &&
        (found == nullptr || made[0].record->entered < found->second[0].record->entered)) {
      found = &entry;
    }
  }
  if (found == nullptr) {
    return std::nullopt;
  }
  std::vector<int> ranks;
  std::vector<Announcement> made;
  for (const First& call : found->second) {
    ranks.push_back(call.rank);
    made.push_back(call.record->call);
  }
  const Disagreement words = disagreement(ranks, made);
  return Finding{Finding::Kind::kMismatch, words.ranks, false,
                 of_step(views_) + words.text + last_collectives(views_, words.sides)};
}

/// Each rank of a circle is inside a call that waits for the next: nobody will ever move.
std::optional<Finding> Judge::circle() const {
  for (int start = 0; start < size(); ++start) {
    std::vector<int> path;
    int rank = start;
    while (std::find(path.begin(), path.end(), rank) == path.end()) {
      const CallRecord* record = waiting(rank);
      if (record == nullptr || silent(rank)) {
        break;
      }
      path.push_back(rank);
      const std::vector<int> absent = missing(rank, *record);
      const auto next = std::find_if(absent.begin(), absent.end(),
                                     [&](int other) { return waiting(other) != nullptr; });
      if (next == absent.end()) {
        break;
      }
      rank = *next;
    }
    if (path.empty() || rank != start || path.size() < 2 || waiting(start) == nullptr) {
      continue;
    }
    const CallRecord& record = *waiting(path.back());
    const std::vector<int> last = missing(path.back(), record);
    if (std::find(last.begin(), last.end(), start) == last.end()) {
      continue;
    }
    std::sort(path.begin(), path.end());
    std::uint64_t fingerprint = 0;
    for (const int member : path) {
      fingerprint = fingerprint * 31 + waiting(member)->call.digest.low;
    }
    return Finding{Finding::Kind::kCircle, path, false,
                   of_step(views_) + named(path) +
                       " wait for each other in a circle: their collectives are in different "
                       "orders" +
                       waits() + last_collectives(views_, path),
                   fingerprint};
  }
  return std::nullopt;
}

std::optional<Finding> Judge::ended() const {
  for (int rank = 0; rank < size(); ++rank) {
    const CallRecord* record = waiting(rank);
    if (record == nullptr) {
      continue;
    }
    for (const int other : missing(rank, *record)) {
      if (view(other).known && view(other).status.ended) {
        return Finding{Finding::Kind::kEnded,
                       {other},
                       false,
                       of_step(views_) + "rank " + std::to_string(other) + " ended without " +
                           in_group(rank, *record) + "; " + whereabouts(other) + waits()};
      }
    }
  }
  return std::nullopt;
}

std::optional<Finding> Judge::vanished() const {
  const bool any_ended = std::any_of(
      views_.begin(), views_.end(), [](const RankView& of) { return of.known && of.status.ended; });
  for (int rank = 0; any_ended && rank < size(); ++rank) {
    const RankView& of = view(rank);
    if (of.known && !of.died && !of.status.ended && of.silent_s > limits_.timeout_s) {
      return Finding{Finding::Kind::kStall,
                     {rank},
                     true,
                     of_step(views_) + absence(rank, "has not ended", "as others have")};
    }
  }
  return std::nullopt;
}

std::optional<Finding> Judge::late(Finding::Kind kind) const {
  const auto too_long = [&](int rank, const CallRecord& record) {
    const double seconds = since(rank, record.entered);
    return kind == Finding::Kind::kStall ? seconds > limits_.timeout_s
                                         : record.usual > 0.0 && seconds > limits_.slow_floor_s &&
                                               seconds > kSlowFactor * record.usual;
  };
  int first = -1;
  for (int rank = 0; rank < size(); ++rank) {
    const CallRecord* record = waiting(rank);
    if (record != nullptr && !silent(rank) && too_long(rank, *record) &&
        (first < 0 || since(rank, record->entered) > since(first, waiting(first)->entered))) {
      first = rank;
    }
  }
  if (first < 0) {
    return std::nullopt;
  }
  // From the longest wait to whom it waits for, and on to ranks that wait for nobody.
  int waiter = first;
  std::vector<int> seen;
  std::vector<int> absent = missing(waiter, *waiting(waiter));
  for (;;) {
    seen.push_back(waiter);
    const auto idle = std::find_if(absent.begin(), absent.end(), [&](int rank) {
      return waiting(rank) == nullptr || silent(rank);
    });
    if (idle != absent.end() || absent.empty() ||
        std::find(seen.begin(), seen.end(), absent[0]) != seen.end()) {
      break;
    }
    waiter = absent[0];
    absent = missing(waiter, *waiting(waiter));
  }
  const CallRecord& record = *waiting(waiter);
  const std::string call = in_group(waiter, record);
  std::erase_if(absent, [&](int rank) { return waiting(rank) != nullptr && !silent(rank); });
  std::string text = of_step(views_);
  if (absent.empty()) {
    text += call + " does not complete though every rank of its group has reached it";
  }
  for (std::size_t i = 0; i < absent.size(); ++i) {
    const bool reached = has_reached(absent[i], waiter, record);
    text += (i == 0 ? "" : "\n  ") +
            absence(absent[i], reached ? "has reached, but does not complete," : "has not reached",
                    call);
  }
  const bool any_silent =
      std::any_of(absent.begin(), absent.end(), [&](int rank) { return silent(rank); });
  return Finding{kind, absent, any_silent, text + waits()};
}

std::string Judge::death(int rank) const {
  std::string text =
      of_step(views_) + "rank " + std::to_string(rank) + " died: its process is gone";
  for (int other = 0; other < size(); ++other) {
    const CallRecord* record = waiting(other);
    if (record == nullptr) {
      continue;
    }
    const std::vector<int> absent = missing(other, *record);
    if (std::find(absent.begin(), absent.end(), rank) != absent.end()) {
      text += ", and is waited for in " + in_group(other, *record);
      break;
    }
  }
  return text + "; when last heard of: " + whereabouts(rank) + waits();
}

}  // namespace

std::optional<Finding> diagnose(std::span<const RankView> views, const Limits& limits) {
  const Judge judge(views, limits);
  if (auto finding = judge.mismatch()) {
    return finding;
  }
  if (auto finding = judge.circle()) {
    return finding;
  }
  if (auto finding = judge.ended()) {
    return finding;
  }
  if (auto finding = judge.late(Finding::Kind::kStall)) {
    return finding;
  }
  if (auto finding = judge.vanished()) {
    return finding;
  }
  return judge.late(Finding::Kind::kSlow);
}

std::string report_of(const Alarm& alarm, std::span<const RankView> views) {
  return alarm.sides.empty() ? alarm.text
                             : of_step(views) + alarm.text + last_collectives(views, alarm.sides);
}

std::string report_of_death(std::span<const RankView> views, int rank, const Limits& limits) {
  return Judge(views, limits).death(rank);
}

std::string last_collectives(std::span<const RankView> views, std::span<const int> ranks) {
  std::string text;
  for (const int rank : ranks) {
    const RankView& view = views[static_cast<std::size_t>(rank)];
    if (!view.known || view.status.last.empty()) {
      continue;
    }
    text += "\n  last collectives of rank " + std::to_string(rank) + ":";
    for (const CallRecord& record : view.status.last) {
      text += "\n    " + to_string(record.call) + (record.under_way ? "  <- in it" : "");
    }
  }
  return text;
}

}  // namespace tandem
