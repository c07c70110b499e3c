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

/// Bytes.
struct Footprint {
  std::size_t device = 0;   ///< of one device
  std::size_t process = 0;  ///< of all devices of a process together
};

/// Of a device of `threads` threads that computes all of `products`, in so many different numbers
/// of rows: blocks of converted operands, what oneDNN copies of operands or sums up while it
/// multiplies, and its kernels. oneDNN is asked how it would compute each product on this CPU, and
/// how large a scratchpad it wants; what its gemm packs is computed as it does, and the size of
/// kernels was measured (2.6.3). Held against the heap by tests/tools/plan_memory.py, and above it
/// there; with AMX, bf16 and odd sizes it can be under, by up to 2 MiB a product. Throws
/// InternalError where oneDNN refuses a product.
Footprint footprint(std::span<const ProductSize> products, DType storage, int threads,
                    double row_counts);

}  // namespace tandem::cpu
