// What is wrong with a job, judged from what all its ranks say of themselves, and the report of it:
// calls that differ, waits in a circle, a rank that ended, died, was stopped or is busy elsewhere.
// Pure functions; whoever collects the statuses (threads of one process, or the side channel) asks.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/flight_recorder.h"
#include "parallel/report.h"

namespace tandem {

/// What is known of one rank.
struct RankView {
  RankStatus status;
  bool known = false;     ///< there is a status
  bool died = false;      ///< its process is gone
  double silent_s = 0.0;  ///< age of the status
};

struct Finding {
  enum class Kind {
    kMismatch,  ///< ranks called different things
    kCircle,    ///< every rank waits for another: their orders of calls differ
    kEnded,     ///< a rank waits for one that has ended or died
    kStall,     ///< a wait is longer than the time-out
    kSlow,      ///< a wait is ten times longer than usual; a warning
  };
  Kind kind = Kind::kStall;
  /// Global ranks at fault as far as can be told, ascending; may be empty.
  std::vector<int> ranks;
  bool silent = false;  ///< one of them has no heartbeat
  std::string report;
  /// Of the calls that a circle is made of: a circle is certain once it is seen twice, since the
  /// statuses of one look are not of one moment.
  std::uint64_t fingerprint = 0;
};

struct Limits {
  double timeout_s = 60.0;
  /// No word for so long: stopped, or its host is cut off. Ranks report four times a second.
  double silence_s = 0.8;
  /// A call is slow once it has taken this long, and ten times its usual time.
  double slow_floor_s = 3.0;
};

/// `views`: of all ranks in order. The gravest finding; nothing where all goes its way.
std::optional<Finding> diagnose(std::span<const RankView> views, const Limits& limits);

/// The report of what a rank found out by itself.
std::string report_of(const Alarm& alarm, std::span<const RankView> views);

/// The report of a rank whose process ended without a word.
std::string report_of_death(std::span<const RankView> views, int rank, const Limits& limits);

/// "\nlast collectives of rank 0:\n  ..." for each of `ranks`.
std::string last_collectives(std::span<const RankView> views, std::span<const int> ranks);

}  // namespace tandem
