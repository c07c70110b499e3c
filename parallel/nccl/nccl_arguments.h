// What a collective's tensors become in NCCL's terms: pure functions without CUDA's headers, so
// that tests need neither a GPU nor NCCL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/device.h"

namespace tandem::nccl {

/// The numbers of nccl.h, which nccl_communicator.cpp holds them against.
enum class DataType : int {
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};
enum class Reduction : int { kSum = 0, kMax = 2, kMin = 3 };

DataType type_of(DType type);
Reduction reduction_of(ReduceOp op);

/// Of one call. `count`: elements of what NCCL counts by, which is the whole tensor of all_reduce
/// and broadcast, and one rank's part of all_gather and reduce_scatter.
struct Buffers {
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  DataType type = DataType::kUint8;
};
/// all_reduce and broadcast.
Buffers in_place(const Tensor& tensor);
Buffers gathered(const Tensor& input, const Tensor& output);
Buffers scattered(const Tensor& input, const Tensor& output);

/// One peer's part of all_to_all, in elements; a side of 0 elements is not called.
struct Exchange {
  int peer = 0;
  const void* send = nullptr;
  std::size_t send_count = 0;
  void* receive = nullptr;
  std::size_t receive_count = 0;
};
std::vector<Exchange> exchanges(const Tensor& input, std::span<const std::int64_t> send_rows,
                                const Tensor& output, std::span<const std::int64_t> receive_rows);

/// How a rank of the world names its group to ncclCommSplit: ranks of one colour become one
/// communicator, in the order of their keys.
struct Split {
  int color = 0;  ///< kNoColor: a group of one, which needs no communicator
  int key = 0;
};
inline constexpr int kNoColor = -1;
Split split_of(std::span<const int> ranks, int index);

}  // namespace tandem::nccl
