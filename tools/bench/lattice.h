// The rates of matmuls over a lattice of shapes, as `bench hardware` measures them.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "core/device.h"
#include "train/plan/matmul_rates.h"

namespace tandem {

inline constexpr std::array<double, 6> kLatticeRows = {64, 128, 256, 512, 1024, 2048};
/// Multiples of three beside powers of two, whose rows fall on the same cache sets.
inline constexpr std::array<double, 11> kLatticeWidths = {64,  128,  192,  256,  384, 512,
                                                          768, 1024, 1536, 2048, 4096};

using LatticeRates = std::array<std::vector<double>, kMatmulKinds>;  ///< as MatmulRates takes them

/// GFLOP/s of the kernels that a linear layer calls, in `precision`, on a device with host memory.
/// How much slower calls are in a step is fitted to steps.
class Lattice {
 public:
  Lattice(Device& device, const Precision& precision);
  ~Lattice();

  /// Calls every shape once: those that take long only where `with_large`.
  void round(bool with_large);
  /// Of each shape the median over its rounds; 0 for shapes that would take too long.
  LatticeRates rates() const;

 private:
  struct Matrices;

  double seconds(const MatmulSize& size);

  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Matrices> matrices_;
  std::array<std::vector<std::vector<double>>, kMatmulKinds> rounds_;  ///< of a shape its rates
};

}  // namespace tandem
