// What a cpu device takes from the heap beside its tensors, from the sizes of its matrix products:
// the planner counts with it, and a run's check of the memory there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace tandem::cpu {

/// Of a product c [rows, columns] of operands in the storage type.
struct ProductSize {
  std::int64_t rows = 0, columns = 0;
  std::int64_t inner = 0;     ///< what is summed over
  bool transpose_b = false;   ///< as a weight is in the forward pass
  bool sums_in_main = false;  ///< c is in the main type: a weight gradient
  bool bias = false;
  bool accumulates = false;
};

/// Bytes, of a device of `threads` threads that computes all of `products`, in so many different
/// numbers of rows: blocks of converted operands, what oneDNN copies of operands or sums up while
/// it multiplies, and its kernels of each shape. Depends on this CPU's instruction set. An upper
/// bound, held against the heap by tests/tools/plan_memory.py with AVX2 and with AVX-512 and AMX;
/// with AMX and odd sizes a kernel can take up to 3 MiB, of which less is counted.
std::size_t footprint(std::span<const ProductSize> products, DType storage, int threads,
                      double row_counts);

/// Bytes that all devices of a process share: kernels for matrices of any shape.
std::size_t shared_footprint(DType storage);

}  // namespace tandem::cpu
