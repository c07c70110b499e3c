#include "tools/bench/gemm.h"

#include <algorithm>
#include <chrono>

#include "core/arena.h"
#include "train/roof.h"

namespace tandem {

namespace {

constexpr int kRepeats = 10;

/// A size that takes long enough to be timed and fits.
std::int64_t matmul_size(const Device& device, DType storage) {
  std::int64_t n = device.host_memory() ? 2048 : 8192;
  while (n > 512 &&
         3 * static_cast<std::size_t>(n * n) * size_of(storage) > device.free_memory() / 2) {
    n /= 2;
  }
  return n;
}

double copy_rate(Device& device) {
  std::size_t bytes = device.host_memory() ? std::size_t{256} << 20 : std::size_t{1} << 30;
  bytes = std::min(bytes, device.free_memory() / 4);
  Arena sizes;
  const Shape shape = {static_cast<std::int64_t>(bytes)};
  sizes.allocate(MemoryCategory::kWorkspace, "from", DType::kU8, shape);
  sizes.allocate(MemoryCategory::kWorkspace, "to", DType::kU8, shape);
  Arena arena(device, sizes);
  const Tensor from = arena.allocate(MemoryCategory::kWorkspace, "from", DType::kU8, shape);
  const Tensor to = arena.allocate(MemoryCategory::kWorkspace, "to", DType::kU8, shape);
  const auto stream = device.make_stream("copy");
  double best = 0.0;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    device.copy(*stream, from, to);
    stream->synchronize();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * static_cast<double>(bytes) / seconds.count());
  }
  return best;
}

}  // namespace

RoofBenchmark benchmark_roofs(RankContext& rank, DType storage) {
  RoofBenchmark result;
  result.n = matmul_size(*rank.device, storage);
  const auto stream = rank.device->make_stream("roof");
  const MatmulShape shape = {result.n, result.n, result.n, false, true};
  result.gflops = matmul_rate(*rank.device, *stream, storage, shape, kRepeats) / 1e9;
  result.copy_gb_per_s = copy_rate(*rank.device) / 1e9;
  return result;
}

}  // namespace tandem
