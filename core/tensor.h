// A tensor is a view: a pointer, an element type, a shape and strides. It owns nothing and is
// copied freely; the Arena, a Buffer or the caller owns the memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/dtype.h"
#include "core/error.h"

namespace tandem {

inline constexpr int kMaxRank = 4;

/// Up to four dimensions, stored in place.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) {
    ensure(dims.size() <= kMaxRank, "a shape has at most four dimensions");
    for (const auto d : dims) {
      dims_[static_cast<std::size_t>(rank_++)] = d;
    }
  }
  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) {
      n *= (*this)[i];
    }
    return n;
  }
  bool operator==(const Shape&) const = default;
  /// "[2048, 512]"
  std::string to_string() const;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

struct Tensor {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  std::array<std::int64_t, kMaxRank> strides{};  ///< in elements

  Tensor() = default;
  /// A row-major tensor over memory that the caller owns.
  Tensor(void* memory, DType type, const Shape& dims);
  template <typename T>
  static Tensor of(std::span<T> values, const Shape& dims) {
    ensure(static_cast<std::int64_t>(values.size()) == dims.numel(), "span and shape differ");
    return {values.data(), DTypeOf<T>::value, dims};
  }

  /// True for a default-constructed tensor, which stands for "none" in kernel arguments.
  bool absent() const { return shape.rank() == 0; }
  int rank() const { return shape.rank(); }
  std::int64_t dim(int i) const { return shape[i]; }
  std::int64_t numel() const { return shape.numel(); }
  /// Bytes of the elements (not of the gaps between strided rows).
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype); }
  bool is_contiguous() const;

  template <typename T>
  T* as() const {
    ensure(DTypeOf<T>::value == dtype, "tensor read as another element type");
    return reinterpret_cast<T*>(data);
  }
  template <typename T>
  std::span<T> span() const {
    ensure(is_contiguous(), "span of a strided tensor");
    return {as<T>(), static_cast<std::size_t>(numel())};
  }

  /// Elements [start, start + length) of dimension `dimension`.
  Tensor slice(int dimension, std::int64_t start, std::int64_t length) const;
  /// The first `count` rows; what a buffer sized for the fullest micro-batch becomes in this one.
  Tensor first(std::int64_t count) const { return slice(0, 0, count); }
  /// The same elements under another shape; contiguous tensors only.
  Tensor reshape(const Shape& dims) const;
  /// One dimension; contiguous tensors only.
  Tensor flat() const { return reshape({numel()}); }
};

}  // namespace tandem
