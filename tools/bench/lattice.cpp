#include "tools/bench/lattice.h"

#include <algorithm>
#include <chrono>

#include "core/arena.h"

namespace tandem {

namespace {

/// The first one makes the kernels, so it is never the fastest.
constexpr int kRounds = 3;
/// Of matmuls of more multiplications than kLarge.
constexpr int kRoundsOfLarge = 2;
constexpr double kLarge = 1 << 25;
/// Of multiplications. Larger matmuls are as fast as those whose longest side is half as long,
/// which is far from true before oneDNN has changed its algorithm for the last time. Of those with
/// a short side fewer are measured: they are many, and few of a model's matmuls are so thin.
constexpr double kMost = 3 << 27;
constexpr double kMostOfShortSides = 1 << 26;
constexpr double kLongRows = 256.0, kLongWidth = 192.0;

bool is_measured(double rows, double out, double in, int round) {
  const double size = rows * out * in;
  if (round >= kRoundsOfLarge) {
    return size <= kLarge;
  }
  return size <= kMostOfShortSides ||
         (size <= kMost && rows >= kLongRows && std::min(out, in) >= kLongWidth);
}

struct Buffers {
  Buffers(Arena& arena, const Precision& precision)
      : x(allocate(arena, "x", precision.storage, kTokens)),
        y(allocate(arena, "y", precision.storage, kTokens)),
        w(allocate(arena, "w", precision.storage, kWeights)),
        d_w(allocate(arena, "dw", precision.main, kWeights)) {}

  Tensor x, y, w, d_w;

 private:
  // Enough for short sides too.
  static constexpr double kTokens = kMost / kLongWidth;
  static constexpr double kWeights = kMost / kLongRows;
  static Tensor allocate(Arena& arena, const char* name, DType dtype, double count) {
    return arena.allocate(MemoryCategory::kWorkspace, name, dtype,
                          {static_cast<std::int64_t>(count)});
  }
};

class Lattice {
 public:
  Lattice(Device& device, const Precision& precision)
      : device_(device),
        stream_(device.make_stream("lattice")),
        counted_buffers_(counted_, precision),
        arena_(device, counted_),
        buffers_(arena_, precision) {
    for (const Tensor& tensor : {buffers_.x, buffers_.y, buffers_.w}) {
      visit_floating(tensor.dtype, [&](auto type) {
        auto* values = tensor.as<decltype(type)>();
        for (std::int64_t i = 0; i < tensor.numel(); ++i) {
          const auto digits = static_cast<float>(i * 2654435761 % 2048);
          values[i] = static_cast<decltype(type)>(digits / 1024.0f - 1.0f);
        }
      });
    }
  }

  LatticeRates measure(const std::function<void()>& together) {
    constexpr std::size_t kPoints =
        kLatticeRows.size() * kLatticeWidths.size() * kLatticeWidths.size();
    LatticeRates rates;
    rates.fill(std::vector<double>(kPoints, 0.0));
    for (int round = 0; round < kRounds; ++round) {
      together();
      std::size_t point = 0;
      for (const double rows : kLatticeRows) {
        for (const double out : kLatticeWidths) {
          for (const double in : kLatticeWidths) {
            const bool measured = is_measured(rows, out, in, round);
            for (std::size_t kind = 0; kind < kMatmulKinds && measured; ++kind) {
              const MatmulSize product = {static_cast<MatmulKind>(kind), rows, out, in};
              double& rate = rates[kind][point];
              rate = std::max(rate, product.flops() / run(product) * 1e-9);
            }
            ++point;
          }
        }
      }
    }
    return rates;
  }

 private:
  /// Memory of matrices that are placed one behind the other, and round again.
  struct Ring {
    Tensor memory;
    std::int64_t used = 0;

    Tensor next(double rows, double columns) {
      const Shape shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
      if (used + shape.numel() > memory.numel()) {
        used = 0;
      }
      const Tensor place = memory.slice(0, used, shape.numel()).reshape(shape);
      used += shape.numel();
      return place;
    }
  };

  /// On other memory than the last calls: in a step no matrix is still in the core's own caches.
  double run(const MatmulSize& size) {
    const Tensor x = x_.next(size.rows, size.in);
    const Tensor y = y_.next(size.rows, size.out);
    const Tensor w = w_.next(size.out, size.in);
    const Tensor d_w = d_w_.next(size.out, size.in);
    Gemm gemm;
    switch (size.kind) {
      case MatmulKind::kForward:
        gemm = {.a = x, .b = w, .c = y, .transpose_b = true};
        break;
      case MatmulKind::kInputGradient:
        gemm = {.a = y, .b = w, .c = x};
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

  Device& device_;
  std::unique_ptr<Stream> stream_;
  Arena counted_;
  Buffers counted_buffers_;
  Arena arena_;
  Buffers buffers_;
  Ring x_{buffers_.x}, y_{buffers_.y}, w_{buffers_.w}, d_w_{buffers_.d_w};
};

}  // namespace

LatticeRates measure_lattice(Device& device, const Precision& precision,
                             const std::function<void()>& together) {
  return Lattice(device, precision).measure(together);
}

}  // namespace tandem
