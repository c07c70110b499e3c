#include "tests/support/fake_nccl/fake_nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/device.h"
#include "tests/support/deferred_device.h"
#include "tests/support/guarded_memory.h"

namespace {

using tandem::DType;
using tandem::Tensor;

/// How often a call is asked after before it is through.
constexpr int kPolls = 3;

enum class Kind { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kExchange };

struct Part {
  Tensor tensor;
  int peer = 0;
};

/// What one rank's kernel brings.
struct Kernel {
  Kind kind = Kind::kExchange;
  Tensor send, receive;
  tandem::ReduceOp op = tandem::ReduceOp::kSum;
  int root = 0;
  std::vector<Part> sends, receives;
};

DType type_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return DType::kU8;
    case ncclInt32:
      return DType::kI32;
    case ncclInt64:
      return DType::kI64;
    case ncclFloat32:
      return DType::kF32;
    case ncclFloat64:
      return DType::kF64;
    case ncclBfloat16:
      return DType::kBF16;
    case ncclFloat16:
      return DType::kF16;
  }
  return DType::kU8;
}

Tensor reached(const void* memory, std::size_t count, ncclDataType_t type) {
  return tandem::testing::reachable_on_device(
      Tensor(const_cast<void*>(memory), type_of(type), {static_cast<std::int64_t>(count)}));
}

void copy(const Tensor& from, const Tensor& to) {
  if (from.bytes() > 0 && from.data != to.data) {
    std::memmove(to.data, from.data, from.bytes());
  }
}

/// Ranks whose kernels meet.
class Clique {
 public:
  explicit Clique(int size) : size_(size) {}

  /// Blocks until all have come (then it is done) or `aborted` holds.
  void run(int rank, std::uint64_t sequence, Kernel kernel, const std::atomic<bool>& aborted) {
    std::unique_lock lock(mutex_);
    Meeting& meeting = meetings_[sequence];
    meeting.kernels.resize(static_cast<std::size_t>(size_));
    meeting.kernels[static_cast<std::size_t>(rank)] = std::move(kernel);
    if (++meeting.arrived == size_) {
      compute(meeting.kernels);
      meeting.done = true;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return meeting.done || aborted; });
    if (!meeting.done) {  // who comes later waits in vain
      --meeting.arrived;
      return;
    }
    if (++meeting.left == size_) {
      meetings_.erase(sequence);
    }
  }
  void wake() {
    const std::scoped_lock lock(mutex_);
    changed_.notify_all();
  }

 private:
  struct Meeting {
    std::vector<Kernel> kernels;
    int arrived = 0, left = 0;
    bool done = false;
  };

  static void reduce(const std::vector<Tensor>& inputs, const Tensor& output, tandem::ReduceOp op) {
    if (output.numel() > 0) {
      const auto device = tandem::make_cpu_device(1);
      device->reduce_ranks(*device->make_stream("nccl"), {inputs, {output}, op});
    }
  }

  void compute(const std::vector<Kernel>& kernels) const {
    for (std::size_t to = 0; to < kernels.size(); ++to) {
      const Kernel& own = kernels[to];
      const std::int64_t count = own.receive.absent() ? 0 : own.receive.numel();
      std::vector<Tensor> inputs;
      switch (own.kind) {
        case Kind::kAllReduce:
          if (to == 0) {
            std::vector<std::byte> memory(own.receive.bytes());
            const Tensor sum(memory.data(), own.receive.dtype, {count});
            for (const Kernel& kernel : kernels) {
              inputs.push_back(kernel.send);
            }
            reduce(inputs, sum, own.op);
            for (const Kernel& kernel : kernels) {
              copy(sum, kernel.receive);
            }
          }
          break;
        case Kind::kReduceScatter: {
          std::vector<std::byte> memory(own.receive.bytes());
          const Tensor sum(memory.data(), own.receive.dtype, {count});
          for (const Kernel& kernel : kernels) {
            inputs.push_back(kernel.send.slice(0, static_cast<std::int64_t>(to) * count, count));
          }
          reduce(inputs, sum, own.op);
          copy(sum, own.receive);
          break;
        }
        case Kind::kAllGather:
          for (std::size_t from = 0; from < kernels.size(); ++from) {
            const Tensor& part = kernels[from].send;
            copy(part, own.receive.slice(0, static_cast<std::int64_t>(from) * part.numel(),
                                         part.numel()));
          }
          break;
        case Kind::kBroadcast:
          copy(kernels[static_cast<std::size_t>(own.root)].send, own.receive);
          break;
        case Kind::kExchange:
          for (const Part& part : own.receives) {
            for (const Part& sent : kernels[static_cast<std::size_t>(part.peer)].sends) {
              if (sent.peer == static_cast<int>(to)) {
                copy(sent.tensor, part.tensor);
              }
            }
          }
          break;
      }
    }
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Meeting> meetings_;
};

/// Where ranks find each other when they make a communicator.
struct Registry {
  struct Split {
    std::map<int, std::pair<int, int>> wishes;  ///< by parent rank: colour, key
    std::map<int, std::shared_ptr<Clique>> cliques;
  };
  std::mutex mutex;
  int ids = 0;
  std::map<std::string, std::pair<std::shared_ptr<Clique>, int>> worlds;  ///< and who came
  std::map<std::pair<const Clique*, int>, Split> splits;
};

Registry& registry() {
  static Registry all;
  return all;
}

std::atomic<bool> queues_full{false};
std::atomic<int> aborted_count{0}, living_count{0};
std::array<std::atomic<int>, 64> errors{};

void wait_for_room(tandem::Stream& stream) {
  const auto end = tandem::testing::make_deferred_event();
  stream.record(*end);
  while (queues_full && !tandem::testing::reached_at(*end)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0, size = 0, world_rank = 0;
  std::shared_ptr<std::atomic<bool>> aborted = std::make_shared<std::atomic<bool>>(false);
  std::uint64_t sequence = 0;
  int splits = 0;
  int polls = 0;
  bool in_progress = false;
  std::function<bool()> ready;   ///< whether the call can be through
  std::function<void()> finish;  ///< its effect

  ncclComm() { ++living_count; }
  ~ncclComm() { --living_count; }

  ncclResult_t begin(std::function<bool()> when, std::function<void()> then) {
    if (in_progress) {
      return ncclInvalidUsage;
    }
    in_progress = true;
    polls = 0;
    ready = std::move(when);
    finish = std::move(then);
    return ncclInProgress;
  }
  ncclResult_t launch(Kernel kernel, cudaStream_t stream) {
    wait_for_room(*reinterpret_cast<tandem::Stream*>(stream));
    return begin([] { return true; },
                 [this, kernel = std::move(kernel), stream] {
                   tandem::testing::enqueue(
                       *reinterpret_cast<tandem::Stream*>(stream),
                       [clique = clique, rank = rank, at = sequence++, kernel, stop = aborted] {
                         clique->run(rank, at, kernel, *stop);
                       });
                 });
  }
};

namespace {

/// Sends and receives between ncclGroupStart and ncclGroupEnd.
struct Group {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  Kernel kernel;
};
thread_local Group group;

}  // namespace

namespace tandem::testing {

void report_error(int rank, ncclResult_t error) { errors[static_cast<std::size_t>(rank)] = error; }
void fill_queues(bool full) { queues_full = full; }
int aborted_communicators() { return aborted_count; }
int living_communicators() { return living_count; }

}  // namespace tandem::testing

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "another error";
}
const char* ncclGetLastError(ncclComm_t) { return "the last words of NCCL"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::scoped_lock lock(registry().mutex);
  *id = {};
  const std::string text = "world " + std::to_string(registry().ids++);
  std::copy(text.begin(), text.end(), id->internal);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0 || config->splitShare != 0) {
    return ncclInvalidArgument;
  }
  const std::scoped_lock lock(registry().mutex);
  auto& [clique, came] = registry().worlds[id.internal];
  if (clique == nullptr) {
    clique = std::make_shared<Clique>(size);
  }
  ++came;
  *comm = new ncclComm;
  (*comm)->clique = clique;
  (*comm)->rank = (*comm)->world_rank = rank;
  (*comm)->size = size;
  return (*comm)->begin(
      [key = std::string(id.internal), size] {
        const std::scoped_lock again(registry().mutex);
        return registry().worlds[key].second == size;
      },
      [] {});
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child,
                           ncclConfig_t* config) {
  if (comm->in_progress || config->blocking != 0) {
    return ncclInvalidUsage;
  }
  const std::pair<const Clique*, int> place{comm->clique.get(), comm->splits++};
  {
    const std::scoped_lock lock(registry().mutex);
    registry().splits[place].wishes[comm->rank] = {color, key};
  }
  return comm->begin(
      [comm, place] {
        const std::scoped_lock lock(registry().mutex);
        return static_cast<int>(registry().splits[place].wishes.size()) == comm->size;
      },
      [comm, color, key, child, place] {
        if (color == NCCL_SPLIT_NOCOLOR) {
          return;
        }
        const std::scoped_lock lock(registry().mutex);
        auto& split = registry().splits[place];
        auto made = std::make_unique<ncclComm>();
        for (const auto& [rank, wish] : split.wishes) {
          if (wish.first == color) {
            ++made->size;
            made->rank += wish.second < key ? 1 : 0;
          }
        }
        auto& clique = split.cliques[color];
        if (clique == nullptr) {
          clique = std::make_shared<Clique>(made->size);
        }
        made->clique = clique;
        made->world_rank = comm->world_rank;
        made->begin([] { return true; }, [] {});
        *child = made.release();
      });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const int error = errors[static_cast<std::size_t>(comm->world_rank)];
  if (error != ncclSuccess) {
    *state = static_cast<ncclResult_t>(error);
    return ncclSuccess;
  }
  if (comm->in_progress && ++comm->polls >= kPolls && comm->ready()) {
    comm->in_progress = false;
    comm->finish();
  }
  *state = comm->in_progress ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return comm->begin([] { return true; }, [] {});
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  *comm->aborted = true;
  comm->clique->wake();
  ++aborted_count;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const auto reduce = op == ncclSum   ? tandem::ReduceOp::kSum
                      : op == ncclMax ? tandem::ReduceOp::kMax
                                      : tandem::ReduceOp::kMin;
  return comm->launch({.kind = Kind::kAllReduce,
                       .send = reached(send, count, type),
                       .receive = reached(receive, count, type),
                       .op = reduce},
                      stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t all = count * static_cast<std::size_t>(comm->size);
  return comm->launch({.kind = Kind::kAllGather,
                       .send = reached(send, count, type),
                       .receive = reached(receive, all, type)},
                      stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  const std::size_t all = count * static_cast<std::size_t>(comm->size);
  const auto reduce = op == ncclSum   ? tandem::ReduceOp::kSum
                      : op == ncclMax ? tandem::ReduceOp::kMax
                                      : tandem::ReduceOp::kMin;
  return comm->launch({.kind = Kind::kReduceScatter,
                       .send = reached(send, all, type),
                       .receive = reached(receive, count, type),
                       .op = reduce},
                      stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return comm->launch({.kind = Kind::kBroadcast,
                       .send = reached(send, count, type),
                       .receive = reached(receive, count, type),
                       .root = root},
                      stream);
}

ncclResult_t ncclGroupStart() {
  group = {};
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  group.comm = comm;
  group.stream = stream;
  group.kernel.sends.push_back({reached(send, count, type), peer});
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  group.comm = comm;
  group.stream = stream;
  group.kernel.receives.push_back({reached(receive, count, type), peer});
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  return group.comm == nullptr ? ncclSuccess : group.comm->launch(group.kernel, group.stream);
}
