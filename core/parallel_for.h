// Splits a range over a device's OpenMP threads in a fixed way: part t of T always covers the same
// indices, so per-part partial sums are the same bits in every run with the same thread count.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem {

/// Parts that `count` indices are worth splitting into, at least `grain` indices each.
inline int parallel_parts(int threads, std::int64_t count, std::int64_t grain) {
  return static_cast<int>(
      std::clamp<std::int64_t>(count / std::max<std::int64_t>(grain, 1), 1, threads));
}

/// Calls body(begin, end, part) for each of `parts` contiguous parts of [0, count) whose inner
/// borders are multiples of `unit`; inline, without a parallel region, where there is one part.
/// `body` must not throw.
template <typename Body>
void parallel_for(int parts, std::int64_t count, std::int64_t unit, const Body& body) {
  if (parts <= 1) {
    body(std::int64_t{0}, count, 0);
    return;
  }
  const std::int64_t units = (count + unit - 1) / unit;
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part) {
    body(std::min(count, units * part / parts * unit),
         std::min(count, units * (part + 1) / parts * unit), part);
  }
}

}  // namespace tandem
