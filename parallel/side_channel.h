// How ranks that are processes tell each other that something is wrong while the data path is
// stuck: TCP connections between a thread of each rank, that carry what every rank is doing (its
// flight recorder), alarms, and the one report. One rank is the hub, to which all others are
// connected: it judges (diagnosis.h) and prints. At first that is rank 0; where the hub dies or
// falls silent, the next rank takes over by connecting to all others itself.
//
// A connection that closes without a farewell is a rank that died: seen at once. A rank that is
// only slow keeps its heartbeat, which its thread sends; a stopped one does not.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "parallel/flight_recorder.h"
#include "parallel/report.h"
#include "parallel/world.h"

namespace tandem {

class SideChannel {
 public:
  /// Where a rank listens. Plain bytes: ranks exchange it over the data path at start.
  struct Address {
    std::array<char, 64> host{};
    std::array<std::uint32_t, 6> ipv4{};  ///< 0: none
    std::uint16_t port = 0;
    std::uint64_t key = 0;  ///< rank 0's is the job's: nobody else is listened to
  };

  /// Listens. `recorder`, this rank's, outlives the channel.
  SideChannel(FlightRecorder& recorder, int rank, int size, const WorldOptions& options);
  /// Says farewell; passes on the report first if there is one.
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  Address address() const;
  /// `all`: of every rank in order. Returns at once; connections are made in the background.
  void open(std::span<const Address> all);
  void set_timeout(double seconds);

  /// Whether the job is over; one load.
  bool over() const noexcept;
  /// Throws PeerLost if the job is over. Where a rank is dead or stopped and the process is to end
  /// anyway, it ends here: a message library that has lost a peer may not survive an orderly exit.
  void check();
  /// Whether a rank is dead or stopped: no call of the message library is safe.
  bool broken() const noexcept;
  /// Why; empty while it is not over.
  std::string report() const;
  /// This rank found that the job cannot go on. Returns the report, which is this alarm's or an
  /// earlier one's; if no other rank answers within seconds, this rank reports by itself.
  std::string raise(const Alarm& alarm);
  /// Failures of others are no longer of interest: all ranks are leaving.
  void close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
