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

/// Multiplications of the largest matmul to measure where one of a middle size reaches
/// `flop_per_s`: as many as a fast machine does in a few milliseconds, and on a slow one 2^28, so
/// that all shapes together take less than a minute.
double largest_matmul(double flop_per_s);

/// GFLOP/s of the kernels that a linear layer calls, in `precision`, on a device with host memory.
/// How much slower calls are in a step is fitted to steps.
class Lattice {
 public:
  /// `largest`: multiplications of the largest matmul to measure. Those with a short side have to
  /// be smaller: they are many, and few of a model's matmuls are so thin.
  Lattice(Device& device, const Precision& precision, double largest);
  ~Lattice();

  /// FLOP/s of a forward product of a middle size, once its kernel is there.
  static double middle_rate(Device& device, const Precision& precision);

  /// Calls every shape once, those that take long only where `with_large`. A shape's first call is
  /// not counted where it is short, since it makes the kernel.
  void round(bool with_large);
  /// Of each shape the median over its rounds; 0 for shapes that would take too long.
  LatticeRates rates() const;

 private:
  class LinearLayer;

  bool is_measured(double rows, double out, double in) const;

  double largest_;
  std::unique_ptr<LinearLayer> layer_;
  std::array<std::vector<std::vector<double>>, kMatmulKinds> rounds_;  ///< of a shape its rates
};

}  // namespace tandem
