// The matmul rate of this machine: what a step's speed is held against.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "core/device.h"

namespace tandem {

/// c [m, n] = op(a) op(b) with op(a) [m, k], op(b) [k, n], a and b of the storage type.
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
};

/// Times one matmul on random data (zeros would read too high); its first run is not to be counted.
class MatmulTimer {
 public:
  MatmulTimer(Device& device, Stream& stream, DType storage, const MatmulShape& shape);
  ~MatmulTimer();
  double seconds() const;  ///< of one run, now
  double flops() const;    ///< of one run

 private:
  class Matrices;
  Device& device_;
  Stream& stream_;
  MatmulShape shape_;
  std::unique_ptr<Matrices> matrices_;
};

/// FLOP/s of the fastest of `repeats` runs (after one that is not counted).
double matmul_rate(Device& device, Stream& stream, DType storage, const MatmulShape& shape,
                   int repeats);

/// FLOP/s of a large matmul of `storage` type on a device that has its own memory, as large as
/// takes long enough to be timed and leaves most of the memory free. Takes about a second.
double device_roof(Device& device, DType storage);

/// The dense matmul peak, in TFLOP/s, that the maker's data sheet gives the GPU that `description`
/// names, for fp32 sums of bf16 products; nothing for GPUs and types that are not in the table.
std::optional<double> datasheet_tflops(std::string_view description, DType storage);

/// FLOP/s of this host's fastest large matmul of `storage` type with `cpus` CPUs busy. Measured for
/// well under a second, then kept in the user's cache directory ($XDG_CACHE_HOME/tandem or
/// ~/.cache/tandem), where later runs on the same kind of processor find it.
double host_roof(DType storage, int cpus);

/// Where measurements of this machine are kept: $XDG_CACHE_HOME/tandem or ~/.cache/tandem; empty
/// where neither variable is set.
std::filesystem::path cache_folder();

}  // namespace tandem
