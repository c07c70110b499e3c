// The words in which a group that disagrees is reported, whoever finds it: the ranks themselves as
// they compare what they call, or a watchdog that sees what they called.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/announcement.h"

namespace tandem {

/// "{0, 2}"
std::string to_string(std::span<const int> ranks);

/// What a rank tells when it finds that the job cannot go on.
struct Alarm {
  std::string text;
  /// Ranks whose last collectives belong to the report.
  std::vector<int> sides = {};
  ExitCode code = ExitCode::kPeer;  ///< what the rank that tells leaves with
};
/// As bytes for another process of the same program, and back. `decode_alarm` throws InternalError
/// for bytes that are no alarm.
std::string encode(const Alarm& alarm);
Alarm decode_alarm(const std::string& bytes);

/// "rank 1: why", of a world of several ranks.
std::string abandoned(int rank, int size, const std::string& why);

struct Disagreement {
  std::string text;
  std::vector<int> ranks;  ///< global: those that differ from most; of two ranks, both
  std::vector<int> sides;  ///< one rank of each opinion, the most shared first
};

/// `ranks` are global and in the order of `calls`, which are not all the same.
Disagreement disagreement(std::span<const int> ranks, std::span<const Announcement> calls);

/// Where the device only knows that `entry` does not end.
std::string not_complete(const LedgerEntry& entry, std::span<const int> ranks, double seconds);

}  // namespace tandem
