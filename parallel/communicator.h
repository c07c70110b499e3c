// A group of ranks that can talk, and the collectives they call. The public functions check their
// arguments, enter the ledger, open a profiler range and call the private implementation: `local`
// (ranks are threads of one process), `mpi` (processes), later `nccl` (GPUs).
//
// Every rank of a group calls the same collectives in the same order with the same counts. Sums are
// made in rank order in the sum type (fp32 for bf16 and fp32, double for double, int64 for
// integers) and rounded once, so their bits depend on neither message sizes nor library. A group of
// one returns at once (out-of-place results filled) and leaves no entry in the ledger.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "core/tensor.h"
#include "parallel/announcement.h"
#include "parallel/ledger.h"

namespace tandem {

class FlightRecorder;
class Profiler;

/// A collective under way. The buffers stay alive, and the result unread, until a wait. A default
/// Work is complete. Errors of the collective (PeerLost for a peer that died, stalled or disagreed)
/// surface at the call or at a wait.
class Work {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual void wait(Stream& stream) = 0;
    virtual void wait_host() = 0;
  };

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// What follows on `stream` starts after the collective. Blocks the host where the data lives on
  /// the host; not where it lives on a device with real streams.
  void wait(Stream& stream) const;
  /// Blocks the host until the result can be read there: for scalars and verdicts.
  void wait_host() const;

 private:
  friend class Communicator;
  class Waiting;

  std::shared_ptr<State> state_;
  Ledger* ledger_ = nullptr;  ///< told for how long a wait held the host
  Ledger::LineNumber line_ = 0;
  Profiler* profiler_ = nullptr;
  Label label_;             ///< of the wait's range
  std::uint32_t flow_ = 0;  ///< of the collective in the trace; 0: not recorded
};

/// A Work that is done when what is queued on `stream` now is done.
Work work_after(Device& device, Stream& stream);

struct CollectiveOptions {
  /// The collective starts after what is queued on this stream now. nullptr: the data is ready.
  Stream* after = nullptr;
  ReduceOp op = ReduceOp::kSum;
  /// What the collective is for, e.g. "layers.3.fc2 g.forward"; shown in reports and traces.
  std::string_view label = {};
};

class Communicator {
 public:
  /// `ranks`: the group's global ranks in order; `index`: this rank's place in it; `device`: where
  /// its tensors live. `ledger` and `profiler` belong to the rank and may be nullptr. All three
  /// outlive the communicator.
  Communicator(std::string name, std::vector<int> ranks, int index, Device& device, Ledger* ledger,
               Profiler* profiler);
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }
  const std::vector<int>& ranks() const { return ranks_; }

  /// From here on calls are told to `recorder`, this rank's, which outlives the communicator.
  void record_in(FlightRecorder& recorder);

  // All tensors must be contiguous: a strided view is refused with InternalError, never summed
  // wrong. All of them throw InternalError for arguments that do not fit together.

  /// In place: every rank's tensor becomes the reduction over ranks.
  Work all_reduce(const Tensor& tensor, const CollectiveOptions& options);
  /// output [size * n, ...] = the ranks' inputs [n, ...] one after another in rank order. The input
  /// may be this rank's own part of the output.
  Work all_gather(const Tensor& input, const Tensor& output, const CollectiveOptions& options);
  /// output [n, ...] = this rank's part of the reduction of the inputs [size * n, ...]. The output
  /// may be this rank's own part of the input.
  Work reduce_scatter(const Tensor& input, const Tensor& output, const CollectiveOptions& options);
  /// Sends send_rows[r] rows (of the first dimension) of `input`, in rank order, to rank r, and
  /// receives receive_rows[r] rows from it into `output`. Buffers must not overlap.
  Work all_to_all(const Tensor& input, std::span<const std::int64_t> send_rows,
                  const Tensor& output, std::span<const std::int64_t> receive_rows,
                  const CollectiveOptions& options);
  /// Every rank's tensor becomes that of group index `root`.
  Work broadcast(const Tensor& tensor, int root, const CollectiveOptions& options);
  /// Returns (at a wait) after every rank has called it.
  Work barrier(const CollectiveOptions& options);

  /// Collective, before results are used that cannot be taken back: throws PeerLost if the ranks
  /// did not call the same so far. Where calls hold the host, each compares as it is made, and
  /// there is nothing to do.
  virtual void compare_calls() {}
  /// Before the host blocks on a stream: returns once what was issued so far is done, and tells the
  /// ledger for how long streams waited for it. Where collectives run on a device, this is where
  /// errors and stalls surface: a stream that waits for a peer in vain would block the host for
  /// ever. Where they run on the host, there is nothing to do.
  virtual void settle() {}
  /// This rank gives up, for `why`, and leaves with `code`. Where collectives run on a device the
  /// world is told so, and those of this and the rank's other groups end unfinished, so that memory
  /// can be freed. In that order: peers notice the end, and would report it as the reason. Nothing
  /// to do where they run on the host.
  virtual void cancel(const std::string& /*why*/, ExitCode /*code*/) noexcept {}

 protected:
  Device& device() const { return *device_; }
  /// The group's own stream, for what an implementation queues.
  Stream& stream() const { return *stream_; }
  /// The collective that is being issued.
  const LedgerEntry& current() const { return current_.entry; }
  const Announcement& announcement() const { return current_; }
  /// The place of its label's totals in the ledger.
  Ledger::LineNumber current_line() const { return current_line_; }
  /// Time that a device took for a collective, and for which it waited for one and could not
  /// compute.
  void add_time(Ledger::LineNumber line, double seconds, double exposed_seconds);

 private:
  /// Whether calls and waits hold the host until the data is there. Where not, an implementation
  /// measures on the device, and tells add_time().
  virtual bool holds_host() const { return true; }
  // Called with checked arguments in groups of two or more.
  virtual Work do_all_reduce(const Tensor& tensor, const CollectiveOptions& options) = 0;
  virtual Work do_all_gather(const Tensor& input, const Tensor& output,
                             const CollectiveOptions& options) = 0;
  virtual Work do_reduce_scatter(const Tensor& input, const Tensor& output,
                                 const CollectiveOptions& options) = 0;
  virtual Work do_all_to_all(const Tensor& input, std::span<const std::int64_t> send_rows,
                             const Tensor& output, std::span<const std::int64_t> receive_rows,
                             const CollectiveOptions& options) = 0;
  virtual Work do_broadcast(const Tensor& tensor, int root, const CollectiveOptions& options) = 0;
  virtual Work do_barrier(const CollectiveOptions& options) = 0;

  class Call;

  void enter(Collective op, const Tensor& tensor, const CollectiveOptions& options, int root);
  Work copy_alone(const Tensor& from, const Tensor& to, const CollectiveOptions& options);

  std::string name_;
  std::vector<int> ranks_;
  int index_;
  Device* device_;
  std::string stream_name_;
  std::unique_ptr<Stream> stream_;
  Ledger* ledger_;
  Profiler* profiler_;
  std::uint64_t sequence_ = 0;
  Announcement current_;
  Ledger::LineNumber current_line_ = 0;
  FlightRecorder* recorder_ = nullptr;
  int recorded_as_ = 0;
};

}  // namespace tandem
