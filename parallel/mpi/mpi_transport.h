// This process's connection to the other ranks over MPI: point-to-point messages between world
// ranks, waits that neither burn a processor nor last for ever, and the two words that ranks send
// when they stop: "gave up" (with the reason) and "leaving". There are no MPI communicators per
// group and no MPI collectives: nothing that could hang where a peer is gone.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "parallel/report.h"

namespace tandem {

/// Messages under way together, and the peer of each.
struct MpiBatch {
  std::vector<MPI_Request> requests;
  std::vector<int> peers;  ///< world ranks
};

class MpiTransport {
 public:
  /// Initialises MPI; one object per process.
  explicit MpiTransport(double timeout_s);
  /// Says that this rank leaves and waits for all others to say so. Finalises MPI if they do.
  /// After a failure it waits for a bounded time only.
  ~MpiTransport();
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  void set_timeout(double seconds) { timeout_s_ = seconds; }

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Throws PeerLost if a peer is known to have given up, or a wait has failed.
  void check_world();
  /// Both throw InternalError for more than 2^31 - 1 bytes.
  void send(MpiBatch& batch, const void* data, std::size_t bytes, int peer, int tag);
  void receive(MpiBatch& batch, void* data, std::size_t bytes, int peer, int tag);
  /// Blocks until all messages of the batch have passed, and empties it. Throws PeerLost that tells
  /// of `entry` in the group `ranks` if a peer gave up, left or lets this rank wait too long.
  void wait(MpiBatch& batch, const LedgerEntry& entry, std::span<const int> ranks);

  /// The caller gives up on the batch and may free its buffers next: what has not begun is
  /// cancelled, what has is given a moment to end.
  void withdraw(MpiBatch& batch) noexcept;

  /// Tells all other ranks, as far as they listen, that this one cannot go on.
  void give_up(const std::string& why) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  /// Reads what peers say outside of collectives.
  void listen();
  void check_peers(const MpiBatch& batch, const LedgerEntry& entry, std::span<const int> ranks,
                   Clock::time_point start);
  std::vector<int> unanswered(const MpiBatch& batch) const;
  /// Tests the batch until it is complete or `seconds` have passed.
  bool try_wait(MpiBatch& batch, double seconds) noexcept;
  bool all_leave() noexcept;

  double timeout_s_;
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm words_ = MPI_COMM_NULL;  ///< "gave up" and "leaving" only: one probe finds either
  int rank_ = 0;
  int size_ = 1;
  bool crowded_ = false;  ///< more ranks than processors
  std::string failure_;   ///< why this rank's collectives can no longer complete
  std::string peer_gave_up_;
  std::string farewell_;
  std::vector<char> left_;
  Clock::time_point last_left_{};
};

}  // namespace tandem
