#include "parallel/nccl/nccl_communicator.h"

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "core/cuda/cuda_device.h"
#include "core/cuda/error.h"
#include "parallel/report.h"

namespace tandem::nccl {

static_assert(static_cast<int>(DataType::kUint8) == ncclUint8);
static_assert(static_cast<int>(DataType::kInt32) == ncclInt32);
static_assert(static_cast<int>(DataType::kInt64) == ncclInt64);
static_assert(static_cast<int>(DataType::kFloat16) == ncclFloat16);
static_assert(static_cast<int>(DataType::kFloat32) == ncclFloat32);
static_assert(static_cast<int>(DataType::kFloat64) == ncclFloat64);
static_assert(static_cast<int>(DataType::kBfloat16) == ncclBfloat16);
static_assert(static_cast<int>(Reduction::kSum) == ncclSum);
static_assert(static_cast<int>(Reduction::kMax) == ncclMax);
static_assert(static_cast<int>(Reduction::kMin) == ncclMin);
static_assert(kNoColor == NCCL_SPLIT_NOCOLOR);

namespace {

constexpr auto kPoll = std::chrono::microseconds(50);

ncclDataType_t native(DataType type) { return static_cast<ncclDataType_t>(type); }
ncclRedOp_t native(Reduction op) { return static_cast<ncclRedOp_t>(op); }

}  // namespace

class NcclCommunicator::NcclWork final : public Work::State {
 public:
  NcclWork(NcclCommunicator& group, StreamMark done)
      : group_(&group), line_(group.current_line()), done_(std::move(done)) {}
  NcclWork(const NcclWork&) = delete;
  NcclWork& operator=(const NcclWork&) = delete;
  /// A rank that drops its work unread may use its buffers next: not before the device is done with
  /// them. One that leaves by an exception does not wait for its peers; who catches it cancels.
  ~NcclWork() override {
    try {
      if (!waited_ && std::uncaught_exceptions() == 0) {
        group_->wait_for(done_);
      }
    } catch (...) {  // told at the next call
    }
  }

  void wait(Stream& stream) override {
    group_->state_->check_open();
    const cudaStream_t native = cuda::native(stream);
    StreamMark before(group_->events_, native);
    cuda::check_status(cudaStreamWaitEvent(native, done_.event(), 0), "cudaStreamWaitEvent");
    group_->waits_.push_back({line_, std::move(before), StreamMark(group_->events_, native)});
    waited_ = true;
  }
  void wait_host() override {
    group_->wait_for(done_);
    waited_ = true;
  }

 private:
  NcclCommunicator* group_;
  Ledger::LineNumber line_;
  StreamMark done_;
  bool waited_ = false;
};

NcclCommunicator::NcclCommunicator(std::string name, std::vector<int> ranks, int index,
                                   Device& device, Ledger* ledger, Profiler* profiler,
                                   std::unique_ptr<NcclComm> comm, std::shared_ptr<RankState> state,
                                   std::unique_ptr<Communicator> host)
    : Communicator(std::move(name), std::move(ranks), index, device, ledger, profiler),
      comm_(std::move(comm)),
      state_(std::move(state)),
      host_(std::move(host)),
      pending_(state_->timeout()) {
  state_->add(*this);
}

NcclCommunicator::~NcclCommunicator() {
  try {
    if (std::uncaught_exceptions() == 0) {
      settle();
    } else {
      state_->abort("this rank gave up", ExitCode::kPeer);
    }
  } catch (...) {  // aborted
  }
  state_->remove(*this);
  if (barrier_ != nullptr) {
    device().deallocate(barrier_);
  }
}

void NcclCommunicator::look() {
  if (comm_ != nullptr) {
    try {
      comm_->check();
    } catch (const PeerLost& error) {
      const std::string call = under_way();
      throw PeerLost((call.empty() ? "no collective under way" : call) + ": " + error.what());
    }
  }
  const std::lock_guard lock(pending_mutex_);
  if (const auto stalled = pending_.look(Pending<StreamMark>::Clock::now())) {
    throw PeerLost(not_complete(stalled->call, ranks(), stalled->seconds));
  }
}

std::string NcclCommunicator::under_way() {
  const std::lock_guard lock(pending_mutex_);
  const LedgerEntry* call = pending_.oldest();
  return call == nullptr ? "" : call->to_string() + " in group " + to_string(ranks());
}

void NcclCommunicator::abort(std::chrono::milliseconds patience) noexcept {
  if (comm_ != nullptr) {
    comm_->abort(patience);
  }
}

void NcclCommunicator::abort() noexcept {
  if (comm_ != nullptr) {
    comm_->abort();
  }
}

void NcclCommunicator::cancel(const std::string& why, ExitCode code) noexcept {
  try {
    state_->fail(why, code);
  } catch (...) {  // no memory for the text
    state_->abort(why, code);
  }
}

bool NcclCommunicator::collect() {
  const std::lock_guard lock(pending_mutex_);
  pending_.forget_done(
      [this](Ledger::LineNumber line, const StreamMark& started, const StreamMark& done) {
        add_time(line, done.seconds_since(started), 0.0);
      });
  return !pending_.empty();
}

void NcclCommunicator::wait_for(const StreamMark& mark) {
  for (state_->check_open(); !mark.reached(); state_->check()) {
    std::this_thread::sleep_for(kPoll);
  }
}

void NcclCommunicator::compare_calls() {
  if (host_ == nullptr) {
    return;
  }
  if (const auto found = history_.compare(*host_)) {
    throw PeerLost(state_->raise({found->text, found->sides}));
  }
}

void NcclCommunicator::settle() {
  // The last first: those before it are then reached, too.
  for (; !waits_.empty(); waits_.pop_back()) {
    const Wait& wait = waits_.back();
    wait_for(wait.behind);
    add_time(wait.line, 0.0, wait.behind.seconds_since(wait.before));
  }
  for (state_->check(); collect(); state_->check()) {
    std::this_thread::sleep_for(kPoll);
  }
}

template <typename Queue>
Work NcclCommunicator::issue(const CollectiveOptions& options, const char* name, Queue&& queue) {
  state_->check_open();
  history_.add(announcement());
  const cudaStream_t on = cuda::native(stream());
  if (options.after != nullptr) {
    const StreamMark ready(events_, cuda::native(*options.after));
    cuda::check_status(cudaStreamWaitEvent(on, ready.event(), 0), "cudaStreamWaitEvent");
  }
  StreamMark started(events_, on);
  try {
    comm_->call(name, [&](ncclComm_t comm) { return queue(comm, on); });
  } catch (const std::exception& error) {
    throw PeerLost(state_->fail(current().to_string() + ": " + error.what(), ExitCode::kPeer));
  }
  const StreamMark done(events_, on);
  {
    const std::lock_guard lock(pending_mutex_);
    pending_.push(current(), current_line(), std::move(started), done);
  }
  return Work(std::make_shared<NcclWork>(*this, done));
}

Work NcclCommunicator::do_all_reduce(const Tensor& tensor, const CollectiveOptions& options) {
  const Buffers args = in_place(tensor);
  return issue(options, "ncclAllReduce", [&](ncclComm_t comm, cudaStream_t on) {
    return ncclAllReduce(args.send, args.receive, args.count, native(args.type),
                         native(reduction_of(options.op)), comm, on);
  });
}

Work NcclCommunicator::do_all_gather(const Tensor& input, const Tensor& output,
                                     const CollectiveOptions& options) {
  const Buffers args = gathered(input, output);
  return issue(options, "ncclAllGather", [&](ncclComm_t comm, cudaStream_t on) {
    return ncclAllGather(args.send, args.receive, args.count, native(args.type), comm, on);
  });
}

Work NcclCommunicator::do_reduce_scatter(const Tensor& input, const Tensor& output,
                                         const CollectiveOptions& options) {
  const Buffers args = scattered(input, output);
  return issue(options, "ncclReduceScatter", [&](ncclComm_t comm, cudaStream_t on) {
    return ncclReduceScatter(args.send, args.receive, args.count, native(args.type),
                             native(reduction_of(options.op)), comm, on);
  });
}

Work NcclCommunicator::do_all_to_all(const Tensor& input, std::span<const std::int64_t> send_rows,
                                     const Tensor& output,
                                     std::span<const std::int64_t> receive_rows,
                                     const CollectiveOptions& options) {
  const auto parts = exchanges(input, send_rows, output, receive_rows);
  const ncclDataType_t type = native(type_of(input.dtype));
  return issue(options, "ncclSend and ncclRecv", [&](ncclComm_t comm, cudaStream_t on) {
    ncclResult_t result = ncclGroupStart();
    const auto join = [&](ncclResult_t next) {
      if (result == ncclSuccess || result == ncclInProgress) {
        result = next;
      }
    };
    for (const Exchange& part : parts) {
      if (part.send_count > 0) {
        join(ncclSend(part.send, part.send_count, type, part.peer, comm, on));
      }
      if (part.receive_count > 0) {
        join(ncclRecv(part.receive, part.receive_count, type, part.peer, comm, on));
      }
    }
    join(ncclGroupEnd());
    return result;
  });
}

Work NcclCommunicator::do_broadcast(const Tensor& tensor, int root,
                                    const CollectiveOptions& options) {
  const Buffers args = in_place(tensor);
  return issue(options, "ncclBroadcast", [&](ncclComm_t comm, cudaStream_t on) {
    return ncclBroadcast(args.send, args.receive, args.count, native(args.type), root, comm, on);
  });
}

Work NcclCommunicator::do_barrier(const CollectiveOptions& options) {
  if (barrier_ == nullptr) {
    barrier_ = static_cast<std::byte*>(device().allocate(sizeof(std::int32_t)));
  }
  return issue(options, "ncclAllReduce", [&](ncclComm_t comm, cudaStream_t on) {
    return ncclAllReduce(barrier_, barrier_, 1, ncclInt32, ncclSum, comm, on);
  });
}

}  // namespace tandem::nccl
