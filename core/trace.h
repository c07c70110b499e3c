// What a rank did when: its ranges on one track, the collectives of each group on tracks of their
// own, and the arrows from a collective to the wait for it. Kept in memory of a fixed size;
// train/trace.h writes it for a trace viewer.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

class TraceRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostEvents = 100'000;

  struct Event {
    std::array<char, 95> text{};  ///< "name detail", cut to what fits
    std::uint8_t track = 0;       ///< of tracks()
    std::int64_t payload = -1;    ///< -1: none
    std::string_view unit;        ///< of the payload, a literal
    Clock::time_point start, end;
    std::uint32_t flow = 0;  ///< of a collective, and of the wait for it; 0: none
  };

  TraceRecorder();

  /// Opens a range on the first track; ranges nest.
  void begin(std::string_view name, std::string_view detail, std::int64_t payload,
             std::string_view unit);
  void end();
  /// Gives the open range, a wait, its collective.
  void arrive(std::uint32_t flow);
  /// A collective of `group` from `start` to now; returns its flow.
  std::uint32_t collective(std::string_view group, std::string_view label, std::string_view op,
                           std::int64_t bytes, Clock::time_point start);

  /// In the order in which they ended.
  const std::vector<Event>& events() const { return events_; }
  /// "compute", then a name for each group.
  const std::vector<std::string>& tracks() const { return tracks_; }
  /// Events were dropped, since there was no room.
  bool full() const { return full_; }

 private:
  void keep(const Event& event);

  std::vector<Event> events_;
  std::vector<Event> open_;
  std::vector<std::string> tracks_ = {"compute"};
  std::uint32_t flows_ = 0;
  bool full_ = false;
};

}  // namespace tandem
