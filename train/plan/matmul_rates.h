// How long matmuls of any shape take on a machine, from the times of a lattice of shapes. Libraries
// switch kernels with shape, transposition and row length, so no formula of a few terms says it.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace tandem {

/// The three products of a linear layer y [rows, out] = x [rows, in] W^T, W [out, in].
enum class MatmulKind {
  kForward,         ///< y = x W^T
  kInputGradient,   ///< dx = dy W
  kWeightGradient,  ///< dW += dy^T x, in the main type
};
inline constexpr std::size_t kMatmulKinds = 3;

struct MatmulSize {
  MatmulKind kind = MatmulKind::kForward;
  double rows = 0.0, out = 0.0, in = 0.0;

  double flops() const { return 2.0 * rows * out * in; }
};

class MatmulRates {
 public:
  MatmulRates() = default;
  /// `rows`, `widths`: ascending, the lattice's sizes. `gflops[kind]`: of (rows, out, in) in this
  /// order; 0 where it was not measured, since it takes long: what was measured with the longest
  /// side halved, as often as it takes, stands for it. A width's half is in the lattice, but for
  /// those that are never the longest of one that was not measured.
  MatmulRates(std::vector<double> rows, std::vector<double> widths,
              std::array<std::vector<double>, kMatmulKinds> gflops);

  bool empty() const { return rows_.empty(); }
  /// Between the lattice's points the logarithm of the rate is linear in those of the sizes; beyond
  /// them the rate stays what it is at the edge. Rows of a matrix whose width is a power of two
  /// fall on the same cache sets, which can cost half the rate: other widths lie between those of
  /// the lattice that are none. A matmul of no rows takes no time.
  double seconds(const MatmulSize& size) const;
  /// FLOP/s of the fastest.
  double best() const;

 private:
  /// Of a size: two points of the lattice, and the share of the second.
  struct Place {
    std::size_t below = 0, above = 0;
    double share = 0.0;
  };
  /// `points`: of the lattice, ascending.
  static Place place(const std::vector<double>& lattice, const std::vector<std::size_t>& points,
                     double size);
  Place place_of_width(double size) const;
  std::size_t at(std::size_t row, std::size_t out, std::size_t in) const {
    return (row * widths_.size() + out) * widths_.size() + in;
  }

  std::vector<double> rows_, widths_;
  std::vector<std::size_t> all_rows_, all_widths_, odd_widths_;  ///< odd: no powers of two
  std::array<std::vector<double>, kMatmulKinds> log_rate_;       ///< of FLOP/s
};

}  // namespace tandem
