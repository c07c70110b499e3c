#include "tools/bench/lattice.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/statistics.h"

namespace tandem {

namespace {

/// Seconds. A first call that takes less is not counted: oneDNN makes its kernel in it, for up to a
/// millisecond, which is as long as a large matmul takes with AMX. Of those that take more it is
/// at most a seventh of one of their two or more calls.
constexpr double kHidesTheKernel = 7e-3;
/// Shares of the largest matmul: from where one takes long, and up to where one with a short side
/// is measured.
constexpr double kTakesLong = 1.0 / 12.0, kMostOfShortSides = 1.0 / 6.0;
constexpr double kLongRows = 256.0, kLongWidth = 192.0;

/// Numbers of a ring, at least: a few megabytes.
constexpr std::int64_t kRing = 1 << 21;

/// Memory of matrices that are placed one behind the other, and round again after kRing numbers; a
/// larger one lies at the beginning every time. So no matrix is still in the core's own caches, and
/// most are in the one that cores share, as in a step of a model that is not small.
class Ring {
 public:
  Ring(Device& device, DType dtype, double numbers) : device_(device) {
    const std::int64_t size = std::max(kRing, static_cast<std::int64_t>(numbers));
    memory_ = {device.allocate(static_cast<std::size_t>(size) * size_of(dtype)), dtype, {size}};
    visit_floating(dtype, [&](auto type) {
      auto* values = memory_.as<decltype(type)>();
      for (std::int64_t i = 0; i < memory_.numel(); ++i) {
        const auto digits = static_cast<float>(i * 2654435761 % 2048);
        values[i] = static_cast<decltype(type)>(digits / 1024.0f - 1.0f);
      }
    });
  }
  ~Ring() { device_.deallocate(memory_.data); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  Tensor next(double rows, double columns) {
    const Shape shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
    if (used_ + shape.numel() > std::max(kRing, shape.numel())) {
      used_ = 0;
    }
    const Tensor place = memory_.slice(0, used_, shape.numel()).reshape(shape);
    used_ += shape.numel();
    return place;
  }

 private:
  Device& device_;
  Tensor memory_;
  std::int64_t used_ = 0;
};

}  // namespace

/// The matrices of a linear layer.
class Lattice::LinearLayer {
 public:
  /// Numbers that the largest matrix of rows, and the largest weight, may have.
  LinearLayer(Device& device, const Precision& precision, double row_numbers, double weight_numbers)
      : device_(device),
        stream_(device.make_stream("lattice")),
        x_(device, precision.storage, row_numbers),
        y_(device, precision.storage, row_numbers),
        w_(device, precision.storage, weight_numbers),
        d_w_(device, precision.main, weight_numbers),
        result_(device, precision.storage, row_numbers) {}

  /// Of one call.
  double seconds(const MatmulSize& size) {
    const Tensor x = x_.next(size.rows, size.in);
    const Tensor y = y_.next(size.rows, size.out);
    const Tensor w = w_.next(size.out, size.in);
    const Tensor d_w = d_w_.next(size.out, size.in);
    Gemm gemm;
    switch (size.kind) {
      case MatmulKind::kForward:
        gemm = {.a = x, .b = w, .c = result_.next(size.rows, size.out), .transpose_b = true};
        break;
      case MatmulKind::kInputGradient:
        gemm = {.a = y, .b = w, .c = result_.next(size.rows, size.in)};
        break;
      case MatmulKind::kWeightGradient:
        gemm = {.a = y, .b = x, .c = d_w, .transpose_a = true, .write = Write::kAccumulate};
        break;
    }
    const auto start = std::chrono::steady_clock::now();
    device_.gemm(*stream_, gemm);
    stream_->synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  Device& device_;
  std::unique_ptr<Stream> stream_;
  Ring x_, y_, w_, d_w_, result_;
};

double Lattice::middle_rate(Device& device, const Precision& precision) {
  constexpr double kSide = 512.0;
  constexpr MatmulSize kMiddle = {MatmulKind::kForward, kSide, kSide, kSide};
  LinearLayer layer(device, precision, kSide * kSide, kSide * kSide);
  double fastest = layer.seconds(kMiddle);
  for (int i = 0; i < 5; ++i) {
    fastest = std::min(fastest, layer.seconds(kMiddle));
  }
  return kMiddle.flops() / fastest;
}

double largest_matmul(double flop_per_s) {
  constexpr double kFew = 5e-3;  // seconds
  constexpr double kOnASlowMachine = 1 << 28;
  return std::max(kOnASlowMachine, kFew * flop_per_s / 2.0);
}

Lattice::Lattice(Device& device, const Precision& precision, double largest)
    : largest_(largest),
      // Enough for short sides too.
      layer_(std::make_unique<LinearLayer>(
          device, precision,
          std::min(largest / kLongWidth, kLatticeRows.back() * kLatticeWidths.back()),
          std::min(largest / kLongRows, kLatticeWidths.back() * kLatticeWidths.back()))) {
  rounds_.fill(std::vector<std::vector<double>>(kLatticeRows.size() * kLatticeWidths.size() *
                                                kLatticeWidths.size()));
}

Lattice::~Lattice() = default;

void Lattice::round(bool with_large) {
  for (int i = 0; i < 10; ++i) {
    layer_->seconds({MatmulKind::kForward, kLatticeRows[0], kLatticeWidths[0], kLatticeWidths[0]});
  }  // threads are awake
  std::size_t point = 0;
  for (const double rows : kLatticeRows) {
    for (const double out : kLatticeWidths) {
      for (const double in : kLatticeWidths) {
        const double size = rows * out * in;
        const bool called =
            is_measured(rows, out, in) && (with_large || size <= largest_ * kTakesLong);
        for (std::size_t kind = 0; called && kind < kMatmulKinds; ++kind) {
          const MatmulSize product = {static_cast<MatmulKind>(kind), rows, out, in};
          std::vector<double>& rates = rounds_[kind][point];
          double taken = layer_->seconds(product);
          if (rates.empty() && taken < kHidesTheKernel) {
            taken = layer_->seconds(product);
          }
          rates.push_back(product.flops() / taken * 1e-9);
        }
        ++point;
      }
    }
  }
}

LatticeRates Lattice::rates() const {
  LatticeRates medians;
  for (std::size_t kind = 0; kind < kMatmulKinds; ++kind) {
    for (const std::vector<double>& rates : rounds_[kind]) {
      medians[kind].push_back(rates.empty() ? 0.0 : median(rates));
    }
  }
  return medians;
}

bool Lattice::is_measured(double rows, double out, double in) const {
  const bool is_short = rows < kLongRows || std::min(out, in) < kLongWidth;
  return rows * out * in <= (is_short ? kMostOfShortSides : 1.0) * largest_;
}

}  // namespace tandem
