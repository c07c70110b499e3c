// The matmul rate of this machine: what a step's speed is held against.
#pragma once

#include <cstdint>

#include "core/device.h"

namespace tandem {

/// c [m, n] = op(a) op(b) with op(a) [m, k], op(b) [k, n], a and b of the storage type.
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
};

/// FLOP/s of the fastest of `repeats` runs (after one that is not counted) on random data: zeros
/// would read too high.
double matmul_rate(Device& device, Stream& stream, DType storage, const MatmulShape& shape,
                   int repeats);

/// FLOP/s of this host's fastest large matmul of `storage` type with `cpus` CPUs busy. Measured for
/// well under a second, then kept in the user's cache directory ($XDG_CACHE_HOME/tandem or
/// ~/.cache/tandem), where later runs on the same kind of processor find it.
double host_roof(DType storage, int cpus);

}  // namespace tandem
