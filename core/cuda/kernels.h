// The cuda device's kernels, one .cu file per family. Arguments are already checked; everything
// runs on `stream` and nothing allocates or blocks. Sums over rows and over whole tensors are made
// in two stages in a fixed order, the first of which writes to the stream's own scratch memory.
#pragma once

#include <cuda_runtime_api.h>

#include "core/device.h"

namespace tandem::cuda {

/// Where a kernel runs, and scratch that belongs to that stream.
struct Launch {
  cudaStream_t stream = nullptr;
  std::byte* scratch = nullptr;
  std::int64_t scratch_bytes = 0;
};

// activation.cu
void activation_forward(const Launch& launch, const ActivationForward& args);
void activation_backward(const Launch& launch, const ActivationBackward& args);
// convert.cu
void cast(const Launch& launch, const Tensor& from, const Tensor& to);
/// out [rows, n], rows strided, (+)= bias [n]; bias of out's type, or fp32.
void add_bias(const Launch& launch, const Tensor& out, const Tensor& bias, Write write);
// dropout.cu
void bias_dropout_add(const Launch& launch, const BiasDropoutAdd& args);
void dropout_backward(const Launch& launch, const DropoutBackward& args);
// embedding.cu
void embedding_forward(const Launch& launch, const EmbeddingForward& args);
void embedding_backward(const Launch& launch, const EmbeddingBackward& args);
// loss.cu
void cross_entropy_max(const Launch& launch, const CrossEntropyMax& args);
void cross_entropy_sums(const Launch& launch, const CrossEntropySums& args);
void cross_entropy_backward(const Launch& launch, const CrossEntropyBackward& args);
void mean_squared_error(const Launch& launch, const MeanSquaredError& args);
// norm.cu
void norm_forward(const Launch& launch, const NormForward& args);
void norm_backward(const Launch& launch, const NormBackward& args);
// optimizer.cu
void adamw(const Launch& launch, const AdamW& args);
void sgd(const Launch& launch, const Sgd& args);
// reduce_ranks.cu
void reduce_ranks(const Launch& launch, const ReduceRanks& args);
// sums.cu
void column_sum(const Launch& launch, const ColumnSum& args);
void sum_of_squares(const Launch& launch, const SumOfSquares& args);

}  // namespace tandem::cuda
