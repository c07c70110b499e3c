#include "parallel/communicator.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "core/profiler.h"
#include "parallel/flight_recorder.h"

namespace tandem {

namespace {

class EventWork final : public Work::State {
 public:
  explicit EventWork(std::unique_ptr<Event> event) : event_(std::move(event)) {}
  void wait(Stream& stream) override { stream.wait(*event_); }
  void wait_host() override { event_->synchronize(); }

 private:
  std::unique_ptr<Event> event_;
};

void check(const Tensor& tensor) {
  ensure(!tensor.absent(), "a collective needs a tensor");
  ensure(tensor.is_contiguous(), "a collective takes contiguous tensors only, and this is strided");
  ensure(tensor.data != nullptr || tensor.numel() == 0, "a collective's tensor has no memory");
}

/// `part` is the place of the smaller buffer inside the larger where they may share memory.
bool apart_or_at(const Tensor& whole, const Tensor& part, std::int64_t place) {
  const std::byte* at = whole.data + place * static_cast<std::int64_t>(size_of(whole.dtype));
  return part.data == at || part.data + part.bytes() <= whole.data ||
         whole.data + whole.bytes() <= part.data;
}

std::int64_t row_elements(const Tensor& tensor) {
  std::int64_t elements = 1;
  for (int i = 1; i < tensor.rank(); ++i) {
    elements *= tensor.dim(i);
  }
  return elements;
}

void check_rows(const Tensor& tensor, std::span<const std::int64_t> rows, int size) {
  ensure(rows.size() == static_cast<std::size_t>(size), "all_to_all needs a row count per rank");
  ensure(std::all_of(rows.begin(), rows.end(), [](std::int64_t n) { return n >= 0; }),
         "all_to_all's row counts cannot be negative");
  ensure(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == tensor.dim(0),
         "all_to_all's row counts do not add up to the tensor's rows");
}

/// Adds the time it lives to the ledger, as time that `line` held the host.
class HeldHost {
 public:
  HeldHost(Ledger* ledger, const Ledger::LineNumber& line)
      : ledger_(ledger), line_(line), start_(Clock::now()) {}
  ~HeldHost() {
    if (ledger_ != nullptr) {
      const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
      ledger_->add_time(line_, seconds, seconds);
    }
  }
  HeldHost(const HeldHost&) = delete;
  HeldHost& operator=(const HeldHost&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  Ledger* ledger_;
  const Ledger::LineNumber& line_;  // of a call: known once it is entered
  Clock::time_point start_;
};

}  // namespace

/// Around a call: its entry in the ledger and in the trace, its profiler range, and the time for
/// which it held the host.
class Communicator::Call {
 public:
  /// `tensor`: this rank's, whose elements are counted; absent for none.
  Call(Communicator& communicator, Collective op, const Tensor& tensor,
       const CollectiveOptions& options, int root = 0)
      : communicator_(communicator),
        entered_{communicator.holds_host() ? communicator.recorder_ : nullptr},
        ledger_(communicator.holds_host() ? communicator.ledger_ : nullptr),
        range_(communicator.profiler_, name(op, tensor, options)),
        held_(ledger_, communicator.current_line_) {
    communicator.enter(op, tensor, options, root);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// The call's result, whose waits are told to ledger and profiler too.
  Work result(Work work) const {
    const LedgerEntry& call = communicator_.current_.entry;
    work.ledger_ = ledger_;
    work.line_ = communicator_.current_line_;
    work.profiler_ = communicator_.profiler_;
    work.label_ = call.label;
    if (Profiler* profiler = communicator_.profiler_; profiler != nullptr && profiler->trace()) {
      work.flow_ = profiler->trace()->collective(
          communicator_.stream_name_, call.label.view(), name_of(call.op),
          call.count * static_cast<std::int64_t>(size_of(call.dtype)), start_);
    }
    return work;
  }

 private:
  /// Leaves after the range has ended: who is not in a call is not in its range either.
  struct Entered {
    FlightRecorder* recorder;
    ~Entered() {
      if (recorder != nullptr) {
        recorder->leave();
      }
    }
  };
  RangeName name(Collective op, const Tensor& tensor, const CollectiveOptions& options) const {
    return {options.label.empty() ? std::string_view(communicator_.name_) : options.label,
            name_of(op), tensor.absent() ? -1 : static_cast<std::int64_t>(tensor.bytes()), "bytes"};
  }

  Communicator& communicator_;
  Entered entered_;
  Ledger* ledger_;
  ProfileRange range_;
  HeldHost held_;
  TraceRecorder::Clock::time_point start_ = TraceRecorder::Clock::now();
};

/// Around a wait: its profiler range, at the end of the trace's arrow, and its time.
class Work::Waiting {
 public:
  explicit Waiting(const Work& work)
      : range_(work.profiler_, {work.label_.view(), "wait"}), held_(work.ledger_, work.line_) {
    if (work.flow_ != 0 && work.profiler_->trace() != nullptr) {
      work.profiler_->trace()->arrive(work.flow_);
    }
  }

 private:
  ProfileRange range_;
  HeldHost held_;
};

void Work::wait(Stream& stream) const {
  if (state_) {
    const Waiting waiting(*this);
    state_->wait(stream);
  }
}

void Work::wait_host() const {
  if (state_) {
    const Waiting waiting(*this);
    state_->wait_host();
  }
}

Work work_after(Device& device, Stream& stream) {
  auto event = device.make_event();
  stream.record(*event);
  return Work(std::make_shared<EventWork>(std::move(event)));
}

Communicator::Communicator(std::string name, std::vector<int> ranks, int index, Device& device,
                           Ledger* ledger, Profiler* profiler)
    : name_(std::move(name)),
      ranks_(std::move(ranks)),
      index_(index),
      device_(&device),
      stream_name_("communication " + name_),
      stream_(device.make_communication_stream(stream_name_)),
      ledger_(ledger),
      profiler_(profiler) {
  ensure(index >= 0 && index < size(), "a rank makes only groups that it is a member of");
}

Work Communicator::all_reduce(const Tensor& tensor, const CollectiveOptions& options) {
  check(tensor);
  if (size() == 1) {
    return {};
  }
  const Call call(*this, Collective::kAllReduce, tensor, options);
  return call.result(do_all_reduce(tensor, options));
}

Work Communicator::all_gather(const Tensor& input, const Tensor& output,
                              const CollectiveOptions& options) {
  check(input);
  check(output);
  ensure(input.dtype == output.dtype, "all_gather's tensors differ in type");
  ensure(output.numel() == size() * input.numel(), "all_gather's output is not size * input");
  ensure(apart_or_at(output, input, index_ * input.numel()),
         "all_gather's input overlaps another rank's part of the output");
  if (size() == 1) {
    return copy_alone(input, output, options);
  }
  const Call call(*this, Collective::kAllGather, input, options);
  return call.result(do_all_gather(input, output, options));
}

Work Communicator::reduce_scatter(const Tensor& input, const Tensor& output,
                                  const CollectiveOptions& options) {
  check(input);
  check(output);
  ensure(input.dtype == output.dtype, "reduce_scatter's tensors differ in type");
  ensure(input.numel() == size() * output.numel(), "reduce_scatter's input is not size * output");
  ensure(apart_or_at(input, output, index_ * output.numel()),
         "reduce_scatter's output overlaps another rank's part of the input");
  if (size() == 1) {
    return copy_alone(input, output, options);
  }
  const Call call(*this, Collective::kReduceScatter, output, options);
  return call.result(do_reduce_scatter(input, output, options));
}

Work Communicator::all_to_all(const Tensor& input, std::span<const std::int64_t> send_rows,
                              const Tensor& output, std::span<const std::int64_t> receive_rows,
                              const CollectiveOptions& options) {
  check(input);
  check(output);
  check_rows(input, send_rows, size());
  check_rows(output, receive_rows, size());
  ensure(input.dtype == output.dtype && row_elements(input) == row_elements(output),
         "all_to_all's tensors differ in type or row length");
  ensure(input.numel() == 0 || output.numel() == 0 || input.data != output.data,
         "all_to_all's buffers overlap");
  if (size() == 1) {
    ensure(input.numel() == output.numel(), "all_to_all to oneself sends what it receives");
    return copy_alone(input, output, options);
  }
  const Call call(*this, Collective::kAllToAll, input, options);
  return call.result(do_all_to_all(input, send_rows, output, receive_rows, options));
}

Work Communicator::broadcast(const Tensor& tensor, int root, const CollectiveOptions& options) {
  check(tensor);
  ensure(root >= 0 && root < size(), "broadcast from a rank outside the group");
  if (size() == 1) {
    return {};
  }
  const Call call(*this, Collective::kBroadcast, tensor, options, root);
  return call.result(do_broadcast(tensor, root, options));
}

Work Communicator::barrier(const CollectiveOptions& options) {
  if (size() == 1) {
    return {};
  }
  const Call call(*this, Collective::kBarrier, Tensor(), options);
  return call.result(do_barrier(options));
}

void Communicator::add_time(Ledger::LineNumber line, double seconds, double exposed_seconds) {
  if (ledger_ != nullptr) {
    ledger_->add_time(line, seconds, exposed_seconds);
  }
}

void Communicator::record_in(FlightRecorder& recorder) {
  recorder_ = &recorder;
  recorded_as_ = recorder.add_group(name_, ranks_);
}

void Communicator::enter(Collective op, const Tensor& tensor, const CollectiveOptions& options,
                         int root) {
  const bool absent = tensor.absent();
  current_ = {.entry = {Label(name_), sequence_++, op, absent ? DType::kU8 : tensor.dtype,
                        absent ? 0 : tensor.numel(), Label(options.label)},
              .reduce = options.op,
              .root = root,
              .shape = absent ? Shape{} : tensor.shape};
  current_.digest = digest_of(current_);
  if (ledger_ != nullptr) {
    current_line_ = ledger_->add(current_.entry, size());
  }
  if (recorder_ != nullptr) {
    recorder_->enter(recorded_as_, current_, holds_host());
  }
}

Work Communicator::copy_alone(const Tensor& from, const Tensor& to,
                              const CollectiveOptions& options) {
  if (from.numel() == 0 || from.data == to.data) {
    return {};
  }
  Stream& on = options.after != nullptr ? *options.after : *stream_;
  device_->copy(on, from.flat(), to.flat());
  return work_after(*device_, on);
}

}  // namespace tandem
