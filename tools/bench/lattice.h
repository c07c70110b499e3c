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

/// FLOP/s of a forward product of a middle size, once its kernel is there.
double middle_matmul_flops(Device& device, const Precision& precision);
/// Multiplications of the largest matmul to measure where a middle one reaches `flops`: as many as
/// a fast machine does in a few milliseconds, and on a slow one not fewer than libraries need to
/// come to their last algorithm.
double largest_matmul(double flops);

/// GFLOP/s of the kernels that a linear layer calls, in `precision`, on a device with host memory.
/// How much slower calls are in a step is fitted to steps.
class Lattice {
 public:
  /// `largest`: multiplications of the largest matmul to measure. Those with a short side have to
  /// be smaller: they are many, and few of a model's matmuls are so thin.
  Lattice(Device& device, const Precision& precision, double largest);
  ~Lattice();

  /// Calls every shape once: those that take long only where `with_large`.
  void round(bool with_large);
  /// Of each shape the median over its rounds; 0 for shapes that would take too long.
  LatticeRates rates() const;

 private:
  struct Matrices;

  bool is_measured(double rows, double out, double in) const;

  double largest_;
  std::unique_ptr<Matrices> matrices_;
  std::array<std::vector<std::vector<double>>, kMatmulKinds> rounds_;  ///< of a shape its rates
};

}  // namespace tandem
