#include "tools/bench/collectives.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "core/arena.h"
#include "train/agree.h"
#include "train/state.h"

namespace tandem {

namespace {

constexpr std::int64_t kLeastBytes = 1 << 10;
constexpr std::int64_t kStride = 4;            ///< from one size to the next
constexpr std::int64_t kMostBytes = 64 << 20;  ///< in host memory
constexpr std::int64_t kMostBytesGpu = 256 << 20;
constexpr double kSecondsPerRow = 0.04;
constexpr double kMostCalls = 200.0;
constexpr int kWarmUps = 2;

constexpr std::array kOps = {Collective::kAllReduce, Collective::kAllGather,
                             Collective::kReduceScatter, Collective::kBroadcast,
                             Collective::kAllToAll};

struct Buffers {
  Buffers(Arena& arena, DType dtype, std::int64_t bytes)
      : whole(allocate(arena, "whole", dtype, bytes)),
        other(allocate(arena, "other", dtype, bytes)) {}

  Tensor whole, other;

 private:
  static Tensor allocate(Arena& arena, const char* name, DType dtype, std::int64_t bytes) {
    return arena.allocate(MemoryCategory::kCommunication, name, dtype,
                          {bytes / static_cast<std::int64_t>(size_of(dtype))});
  }
};

class Benchmark {
 public:
  Benchmark(RankContext& rank, const Buffers& buffers) : rank_(rank), buffers_(buffers) {}

  std::vector<CollectiveTime> run(Communicator& group, std::int64_t most_bytes) {
    std::vector<CollectiveTime> times;
    const auto element = static_cast<std::int64_t>(size_of(buffers_.whole.dtype));
    for (const Collective op : kOps) {
      for (std::int64_t bytes = kLeastBytes; bytes <= most_bytes; bytes *= kStride) {
        const std::int64_t count = bytes / element / group.size() * group.size();
        times.push_back({.group = group.name(),
                         .ranks = group.size(),
                         .op = op,
                         .bytes = count * element,
                         .count = count,
                         .seconds = seconds(group, call_of(group, op, count))});
      }
    }
    return times;
  }

 private:
  using Call = std::function<Work()>;

  /// On the first `count` elements of the buffers.
  Call call_of(Communicator& group, Collective op, std::int64_t count) const {
    const CollectiveOptions options = {.after = rank_.compute, .label = "bench"};
    const Tensor whole = buffers_.whole.first(count), other = buffers_.other.first(count);
    const std::int64_t part = count / group.size();
    const Tensor own = whole.slice(0, part * group.index(), part);
    switch (op) {
      case Collective::kAllReduce:
        return [=, &group] { return group.all_reduce(whole, options); };
      case Collective::kAllGather:
        return [=, &group] { return group.all_gather(own, whole, options); };
      case Collective::kReduceScatter:
        return [=, &group] { return group.reduce_scatter(whole, own, options); };
      case Collective::kBroadcast:
        return [=, &group] { return group.broadcast(whole, 0, options); };
      default:
        return [=, &group, rows = std::vector(static_cast<std::size_t>(group.size()), part)] {
          return group.all_to_all(whole, rows, other, rows, options);
        };
    }
  }

  /// Mean time of a call, the longest of all ranks.
  double seconds(Communicator& group, const Call& call) {
    run_calls(group, call, kWarmUps);
    const double first = run_calls(group, call, 1);
    const auto calls = static_cast<int>(std::clamp(kSecondsPerRow / first, 3.0, kMostCalls));
    return run_calls(group, call, calls);
  }

  double run_calls(Communicator& group, const Call& call, int calls) {
    rank_.control->barrier({.label = "bench"}).wait_host();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      call().wait(*rank_.compute);
    }
    group.settle();
    rank_.compute->synchronize();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    double longest = elapsed.count() / calls;
    rank_.control
        ->all_reduce(Tensor(&longest, DType::kF64, {1}), {.op = ReduceOp::kMax, .label = "bench"})
        .wait_host();
    return longest;
  }

  RankContext& rank_;
  const Buffers& buffers_;
};

}  // namespace

double bus_factor(Collective op, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (op) {
    case Collective::kAllReduce:
      return 2.0 * others;
    case Collective::kBroadcast:
      return 1.0;
    default:
      return others;
  }
}

std::vector<CollectiveTime> benchmark_collectives(Session& session, const Config& config) {
  RankContext& rank = session.rank();
  const DType dtype = precision_of(config, rank.device->kind()).storage;
  const std::int64_t most = rank.device->host_memory() ? kMostBytes : kMostBytesGpu;
  Arena sizes;
  const Buffers counted(sizes, dtype, most);
  agree(*rank.control, [&] { session.check_memory(config, sizes, {}); });
  Arena arena(*rank.device, sizes);
  const Buffers buffers(arena, dtype, most);
  Benchmark benchmark(rank, buffers);
  std::vector<CollectiveTime> times;
  for (Communicator* group : {rank.tensor_parallel, rank.data_parallel}) {
    if (group->size() > 1) {
      const auto of_group = benchmark.run(*group, most);
      times.insert(times.end(), of_group.begin(), of_group.end());
    }
  }
  return times;
}

}  // namespace tandem
