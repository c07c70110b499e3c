// The two roofs that a step is held against: the rate of a large square matmul and the bandwidth of
// a copy in the device's memory.
#pragma once

#include <cstdint>

#include "parallel/rank_context.h"

namespace tandem {

struct RoofBenchmark {
  std::int64_t n = 0;  ///< of the [n, n] matrices
  double gflops = 0.0;
  double copy_gb_per_s = 0.0;  ///< bytes read and written
};

/// This rank's device, by itself, in `storage` type on random data.
RoofBenchmark benchmark_roofs(RankContext& rank, DType storage);

}  // namespace tandem
