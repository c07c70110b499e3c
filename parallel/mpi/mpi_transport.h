// This process's connection to the other ranks: point-to-point messages over MPI between world
// ranks, waits that neither burn a processor nor outlive the job, and the side channel by which a
// job that cannot go on is ended. There are no MPI communicators per group and, but for one
// exchange of addresses at start, no MPI collectives: nothing that could hang where a peer is gone.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "parallel/side_channel.h"

namespace tandem {

/// Messages under way together, and the peer of each.
struct MpiBatch {
  std::vector<MPI_Request> requests;
  std::vector<int> peers;  ///< world ranks
};

class MpiTransport {
 public:
  /// Initialises MPI; one object per process.
  explicit MpiTransport(const WorldOptions& options);
  /// Says that this rank leaves and waits for all others to say so. Finalises MPI if they do.
  /// After a failure it waits for a bounded time only.
  ~MpiTransport();
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  void set_timeout(double seconds) { channel_->set_timeout(seconds); }
  FlightRecorder& recorder() { return *recorder_; }

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Throws PeerLost if the job is over.
  void check_world() { channel_->check(); }
  /// This rank found that the job cannot go on; returns the report.
  std::string raise(const Alarm& alarm) { return channel_->raise(alarm); }
  /// Both throw InternalError for more than 2^31 - 1 bytes.
  void send(MpiBatch& batch, const void* data, std::size_t bytes, int peer, int tag);
  void receive(MpiBatch& batch, void* data, std::size_t bytes, int peer, int tag);
  /// Blocks until all messages of the batch have passed, and empties it. Throws PeerLost if the job
  /// is over before.
  void wait(MpiBatch& batch);

  /// The caller gives up on the batch and may free its buffers next: what has not begun is
  /// cancelled, what has is given a moment to end.
  void withdraw(MpiBatch& batch) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  /// Tests the batch until it is complete or `seconds` have passed.
  bool try_wait(MpiBatch& batch, double seconds) noexcept;
  bool all_leave() noexcept;

  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm farewells_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  bool crowded_ = false;  ///< more ranks on this host than processors
  std::unique_ptr<FlightRecorder> recorder_;
  std::unique_ptr<SideChannel> channel_;
};

}  // namespace tandem
