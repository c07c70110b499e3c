// Picks a kernel's storage type, and how many threads it is worth.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>

#include "core/parallel_for.h"
#include "core/tensor.h"

namespace tandem::cpu {

/// Calls f with a null pointer of the stored type: float, BFloat16 or Float16.
template <typename F>
inline void visit_storage(DType type, const F& f) {
  switch (type) {
    case DType::kF32:
      return f(static_cast<float*>(nullptr));
    case DType::kBF16:
      return f(static_cast<BFloat16*>(nullptr));
    case DType::kF16:
      return f(static_cast<Float16*>(nullptr));
    default:
      throw InternalError("the cpu device computes with fp32, bf16 and fp16, not " +
                          std::string(name_of(type)));
  }
}

/// Splits `count` rows (or columns, or elements) that cost `elements` each; a part is worth a
/// thread from 16 Ki elements on.
template <typename Body>
void split(int threads, std::int64_t count, std::int64_t elements, std::int64_t unit,
           const Body& body) {
  parallel_for(parallel_parts(threads, count * elements, 16384), count, unit, body);
}

/// Partial sums in double, one for each part of a split, added up in order.
class PartialSums {
 public:
  static int limit(int threads) { return std::min(threads, static_cast<int>(kMost)); }
  double& operator[](int part) { return sums_[static_cast<std::size_t>(part)]; }
  double total() const { return std::accumulate(sums_.begin(), sums_.end(), 0.0); }

 private:
  static constexpr std::size_t kMost = 64;
  std::array<double, kMost> sums_{};
};

}  // namespace tandem::cpu
