#include "tools/bench/lattice.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tandem {

namespace {

/// Of multiplications: what takes long, and what takes long enough to hide the making of a kernel.
constexpr double kLarge = 1 << 25;
constexpr double kHidesTheKernel = 1 << 26;
/// Larger matmuls are as fast as those whose longest side is half as long, which is far from true
/// before oneDNN has changed its algorithm for the last time. Of those with a short side fewer are
/// measured: they are many, and few of a model's matmuls are so thin.
constexpr double kMost = 3 << 27;
constexpr double kMostOfShortSides = 1 << 26;
constexpr double kLongRows = 256.0, kLongWidth = 192.0;

bool is_measured(double rows, double out, double in) {
  const double size = rows * out * in;
  return size <= kMostOfShortSides ||
         (size <= kMost && rows >= kLongRows && std::min(out, in) >= kLongWidth);
}

/// Memory of matrices that are placed one behind the other, and round again: in a step no matrix is
/// still in the core's own caches.
class Ring {
 public:
  Ring(Device& device, DType dtype, double numbers)
      : device_(device),
        memory_(device.allocate(static_cast<std::size_t>(numbers) * size_of(dtype)), dtype,
                {static_cast<std::int64_t>(numbers)}) {
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
    if (used_ + shape.numel() > memory_.numel()) {
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
struct Lattice::Matrices {
  // Enough for short sides too.
  static constexpr double kTokens = kMost / kLongWidth;
  static constexpr double kWeights = kMost / kLongRows;

  Matrices(Device& device, const Precision& precision)
      : x(device, precision.storage, kTokens),
        y(device, precision.storage, kTokens),
        w(device, precision.storage, kWeights),
        d_w(device, precision.main, kWeights),
        result(device, precision.storage, kTokens) {}

  Ring x, y, w, d_w, result;
};

Lattice::Lattice(Device& device, const Precision& precision)
    : device_(device),
      stream_(device.make_stream("lattice")),
      matrices_(std::make_unique<Matrices>(device, precision)) {
  rounds_.fill(std::vector<std::vector<double>>(kLatticeRows.size() * kLatticeWidths.size() *
                                                kLatticeWidths.size()));
}

Lattice::~Lattice() = default;

void Lattice::round(bool with_large) {
  for (int i = 0; i < 10; ++i) {
    seconds({MatmulKind::kForward, kLatticeRows[0], kLatticeWidths[0], kLatticeWidths[0]});
  }  // threads are awake
  std::size_t point = 0;
  for (const double rows : kLatticeRows) {
    for (const double out : kLatticeWidths) {
      for (const double in : kLatticeWidths) {
        const double size = rows * out * in;
        for (std::size_t kind = 0; kind < kMatmulKinds && is_measured(rows, out, in); ++kind) {
          if (size > kLarge && !with_large) {
            continue;
          }
          const MatmulSize product = {static_cast<MatmulKind>(kind), rows, out, in};
          std::vector<double>& rates = rounds_[kind][point];
          if (rates.empty() && size <= kHidesTheKernel) {
            seconds(product);
          }
          rates.push_back(product.flops() / seconds(product) * 1e-9);
        }
        ++point;
      }
    }
  }
}

LatticeRates Lattice::rates() const {
  LatticeRates medians;
  for (std::size_t kind = 0; kind < kMatmulKinds; ++kind) {
    for (std::vector<double> rates : rounds_[kind]) {
      std::sort(rates.begin(), rates.end());
      const std::size_t middle = rates.size() / 2;
      medians[kind].push_back(rates.empty()           ? 0.0
                              : rates.size() % 2 == 1 ? rates[middle]
                                                      : (rates[middle - 1] + rates[middle]) / 2.0);
    }
  }
  return medians;
}

double Lattice::seconds(const MatmulSize& size) {
  const Tensor x = matrices_->x.next(size.rows, size.in);
  const Tensor y = matrices_->y.next(size.rows, size.out);
  const Tensor w = matrices_->w.next(size.out, size.in);
  const Tensor d_w = matrices_->d_w.next(size.out, size.in);
  Gemm gemm;
  switch (size.kind) {
    case MatmulKind::kForward:
      gemm = {
          .a = x, .b = w, .c = matrices_->result.next(size.rows, size.out), .transpose_b = true};
      break;
    case MatmulKind::kInputGradient:
      gemm = {.a = y, .b = w, .c = matrices_->result.next(size.rows, size.in)};
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

}  // namespace tandem
