#include "parallel/flight_recorder.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace tandem {

namespace {

/// Calls of a label before its usual time is known.
constexpr std::uint32_t kKnown = 5;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(const std::string& text) {
    put(text.size());
    bytes_ += text;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const char> bytes) : bytes_(bytes) {}

  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() {
    const auto part = take(get<std::size_t>());
    return {part.data(), part.size()};
  }
  /// How many of something that takes `bytes` each follow.
  std::size_t count(std::size_t bytes) {
    const auto number = get<std::size_t>();
    if (number > bytes_.size() / bytes) {
      throw std::out_of_range("a rank's status is cut short");
    }
    return number;
  }

 private:
  std::span<const char> take(std::size_t size) {
    if (size > bytes_.size()) {
      throw std::out_of_range("a rank's status is cut short");
    }
    const auto part = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return part;
  }

  std::span<const char> bytes_;
};

}  // namespace

std::string encode(const RankStatus& status) {
  Writer writer;
  writer.put(status.rank);
  writer.put(status.step);
  writer.put(status.ended);
  writer.put(status.now);
  writer.put(status.inside);
  writer.put(status.groups.size());
  for (const GroupStatus& group : status.groups) {
    writer.put(group.name);
    writer.put(group.ranks.size());
    for (const int rank : group.ranks) {
      writer.put(rank);
    }
    writer.put(group.instance);
    writer.put(group.calls);
  }
  writer.put(status.last.size());
  for (const CallRecord& record : status.last) {
    writer.put(record);
  }
  return writer.take();
}

RankStatus decode(std::span<const char> bytes) {
  Reader reader(bytes);
  RankStatus status;
  status.rank = reader.get<int>();
  status.step = reader.get<std::int64_t>();
  status.ended = reader.get<bool>();
  status.now = reader.get<double>();
  status.inside = reader.text();
  status.groups.resize(reader.count(1));
  for (GroupStatus& group : status.groups) {
    group.name = reader.text();
    group.ranks.resize(reader.count(sizeof(int)));
    for (int& rank : group.ranks) {
      rank = reader.get<int>();
    }
    group.instance = reader.get<std::int32_t>();
    group.calls = reader.get<std::uint64_t>();
  }
  status.last.resize(reader.count(sizeof(CallRecord)));
  for (CallRecord& record : status.last) {
    record = reader.get<CallRecord>();
    if (record.group < 0 || static_cast<std::size_t>(record.group) >= status.groups.size()) {
      throw std::out_of_range("a rank's status names a group that it has not");
    }
    const Announcement& call = record.call;
    if (!call.entry.group.is_valid() || !call.entry.label.is_valid() || call.shape.rank() < 0 ||
        call.shape.rank() > kMaxRank) {
      throw std::out_of_range("a rank's status holds a call that is none");
    }
  }
  return status;
}

FlightRecorder::FlightRecorder(int rank) : rank_(rank) {}

int FlightRecorder::add_group(const std::string& name, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  GroupStatus group{name, ranks};
  group.instance = static_cast<std::int32_t>(std::count_if(
      groups_.begin(), groups_.end(),
      [&](const GroupStatus& other) { return other.name == name && other.ranks == ranks; }));
  groups_.push_back(std::move(group));
  return static_cast<int>(groups_.size()) - 1;
}

FlightRecorder::Usual& FlightRecorder::usual_of(const Announcement& call) {
  // A digest that is the same for all calls of a label.
  Announcement place = call;
  place.entry.sequence = 0;
  place.entry.count = 0;
  const std::uint64_t key = digest_of(place).low | 1;
  Usual& usual = usual_[key % usual_.size()];
  if (usual.place != key) {  // a label that shares the slot with another has no usual time
    usual = {key};
  }
  return usual;
}

void FlightRecorder::enter(int group, const Announcement& call, bool blocks) {
  const std::lock_guard lock(mutex_);
  ++groups_[static_cast<std::size_t>(group)].calls;
  CallRecord& record = ring_[calls_++ % kKept];
  record.call = call;
  record.group = group;
  record.under_way = blocks;
  record.entered = now();
  record.left = record.entered;
  if (blocks) {
    const Usual& usual = usual_of(call);
    record.usual = usual.calls < kKnown ? 0.0 : static_cast<double>(usual.seconds);
  }
}

void FlightRecorder::leave() {
  const std::lock_guard lock(mutex_);
  CallRecord& record = ring_[(calls_ - 1) % kKept];
  record.under_way = false;
  record.left = now();
  Usual& usual = usual_of(record.call);
  usual.calls = std::min(usual.calls + 1, 4 * kKnown);
  usual.seconds += (static_cast<float>(record.left - record.entered) - usual.seconds) /
                   static_cast<float>(usual.calls);
}

void FlightRecorder::set_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void FlightRecorder::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

RankStatus FlightRecorder::status() const {
  RankStatus status;
  const OpenRanges::Name inside = ranges_.innermost();
  status.inside = inside.data();
  const std::lock_guard lock(mutex_);
  status.rank = rank_;
  status.step = step_;
  status.ended = ended_;
  status.now = now();
  status.groups = groups_;
  const std::uint64_t kept = std::min<std::uint64_t>(calls_, kKept);
  for (std::uint64_t i = calls_ - kept; i < calls_; ++i) {
    status.last.push_back(ring_[i % kKept]);
  }
  return status;
}

}  // namespace tandem
