#include "parallel/nccl/nccl_arguments.h"

#include <algorithm>
#include <numeric>

namespace tandem::nccl {

DataType type_of(DType type) {
  switch (type) {
    case DType::kF64:
      return DataType::kFloat64;
    case DType::kF32:
      return DataType::kFloat32;
    case DType::kBF16:
      return DataType::kBfloat16;
    case DType::kF16:
      return DataType::kFloat16;
    case DType::kI64:
      return DataType::kInt64;
    case DType::kI32:
      return DataType::kInt32;
    case DType::kU8:
      return DataType::kUint8;
  }
  throw InternalError("NCCL has no such type");
}

Reduction reduction_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return Reduction::kSum;
    case ReduceOp::kMax:
      return Reduction::kMax;
    case ReduceOp::kMin:
      return Reduction::kMin;
  }
  throw InternalError("NCCL has no such reduction");
}

Buffers in_place(const Tensor& tensor) {
  return {tensor.data, tensor.data, static_cast<std::size_t>(tensor.numel()),
          type_of(tensor.dtype)};
}

Buffers gathered(const Tensor& input, const Tensor& output) {
  return {input.data, output.data, static_cast<std::size_t>(input.numel()), type_of(input.dtype)};
}

Buffers scattered(const Tensor& input, const Tensor& output) {
  return {input.data, output.data, static_cast<std::size_t>(output.numel()), type_of(output.dtype)};
}

std::vector<Exchange> exchanges(const Tensor& input, std::span<const std::int64_t> send_rows,
                                const Tensor& output, std::span<const std::int64_t> receive_rows) {
  std::vector<Exchange> parts;
  std::int64_t sent = 0, received = 0;
  for (std::size_t peer = 0; peer < send_rows.size(); ++peer) {
    const Tensor send = input.slice(0, sent, send_rows[peer]);
    const Tensor receive = output.slice(0, received, receive_rows[peer]);
    parts.push_back({static_cast<int>(peer), send.data, static_cast<std::size_t>(send.numel()),
                     receive.data, static_cast<std::size_t>(receive.numel())});
    sent += send_rows[peer];
    received += receive_rows[peer];
  }
  return parts;
}

Split split_of(std::span<const int> ranks, int index) {
  if (ranks.size() == 1) {
    return {kNoColor, 0};
  }
  return {*std::min_element(ranks.begin(), ranks.end()), index};
}

}  // namespace tandem::nccl
