// The rates of matmuls over a lattice of shapes, as `bench hardware` measures them.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "core/device.h"
#include "train/plan/matmul_rates.h"

namespace tandem {

inline constexpr std::array<double, 6> kLatticeRows = {64, 128, 256, 512, 1024, 2048};
/// Multiples of three beside powers of two, whose rows fall on the same cache sets.
inline constexpr std::array<double, 11> kLatticeWidths = {64,  128,  192,  256,  384, 512,
                                                          768, 1024, 1536, 2048, 4096};

using LatticeRates = std::array<std::vector<double>, kMatmulKinds>;  ///< as MatmulRates takes them

/// GFLOP/s of the kernels that a linear layer calls, in `precision`, on a device with host memory:
/// the fastest of a few calls that lie apart in time. It repeats where a median does not, on a
/// machine with anything else to do; how much slower calls are in a step is fitted to steps. 0 for
/// shapes that would take too long. `together` is called before each round, so that ranks that
/// measure side by side stay so.
LatticeRates measure_lattice(Device& device, const Precision& precision,
                             const std::function<void()>& together);

}  // namespace tandem
