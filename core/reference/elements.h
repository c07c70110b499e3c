// Elements of a tensor of any floating type, read as doubles and rounded once when written.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace tandem::reference {

/// The element `i` positions after the first one in memory.
inline double load(const Tensor& tensor, std::int64_t i) {
  switch (tensor.dtype) {
    case DType::kF64:
      return reinterpret_cast<const double*>(tensor.data)[i];
    case DType::kF32:
      return reinterpret_cast<const float*>(tensor.data)[i];
    case DType::kF16:
      return static_cast<double>(reinterpret_cast<const Float16*>(tensor.data)[i]);
    default:
      return static_cast<double>(reinterpret_cast<const BFloat16*>(tensor.data)[i]);
  }
}

inline void store(const Tensor& tensor, std::int64_t i, double value) {
  switch (tensor.dtype) {
    case DType::kF64:
      reinterpret_cast<double*>(tensor.data)[i] = value;
      return;
    case DType::kF32:
      reinterpret_cast<float*>(tensor.data)[i] = static_cast<float>(value);
      return;
    case DType::kF16:
      reinterpret_cast<Float16*>(tensor.data)[i] = Float16(value);
      return;
    default:
      reinterpret_cast<BFloat16*>(tensor.data)[i] = BFloat16(value);
  }
}

}  // namespace tandem::reference
