#include "core/tensor.h"

namespace tandem {

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string((*this)[i]);
  }
  return text + "]";
}

Tensor::Tensor(void* memory, DType type, const Shape& dims)
    : data(static_cast<std::byte*>(memory)), dtype(type), shape(dims) {
  std::int64_t stride = 1;
  for (int i = dims.rank() - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = stride;
    stride *= dims[i];
  }
}

bool Tensor::is_contiguous() const {
  std::int64_t stride = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (dim(i) != 1 && strides[static_cast<std::size_t>(i)] != stride) {
      return numel() == 0;
    }
    stride *= dim(i);
  }
  return true;
}

Tensor Tensor::slice(int dimension, std::int64_t start, std::int64_t length) const {
  ensure(dimension >= 0 && dimension < rank(), "slice of a dimension the tensor has not");
  ensure(start >= 0 && length >= 0 && start + length <= dim(dimension), "slice out of range");
  Tensor view = *this;
  view.shape[dimension] = length;
  if (view.data != nullptr) {
    view.data += start * strides[static_cast<std::size_t>(dimension)] *
                 static_cast<std::int64_t>(size_of(dtype));
  }
  return view;
}

Tensor Tensor::reshape(const Shape& dims) const {
  ensure(is_contiguous(), "reshape of a strided tensor");
  ensure(dims.numel() == numel(), "reshape changes the number of elements");
  return {data, dtype, dims};
}

}  // namespace tandem
