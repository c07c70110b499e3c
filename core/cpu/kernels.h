// The cpu device's vector kernels over fp32 and bf16 storage, one file per family. Arguments are
// already checked. `threads` splits rows or columns; results are the same for every thread count,
// but for sums in double over whole tensors, whose parts are fixed by it.
#pragma once

#include "core/device.h"

namespace tandem::cpu {

// activation.cpp
void activation_forward(const ActivationForward& args, int threads);
void activation_backward(const ActivationBackward& args, int threads);
// convert.cpp
void cast(const Tensor& from, const Tensor& to, int threads);
/// Matrices with strided rows, fp32 or bf16 on either side.
void convert_matrix(const Tensor& from, const Tensor& to, int threads);
// dropout.cpp
void bias_dropout_add(const BiasDropoutAdd& args, int threads);
void dropout_backward(const DropoutBackward& args, int threads);
// embedding.cpp
void embedding_forward(const EmbeddingForward& args, int threads);
void embedding_backward(const EmbeddingBackward& args, int threads);
// loss.cpp
void cross_entropy_max(const CrossEntropyMax& args, int threads);
void cross_entropy_sums(const CrossEntropySums& args, int threads);
void cross_entropy_backward(const CrossEntropyBackward& args, int threads);
void mean_squared_error(const MeanSquaredError& args, int threads);
// norm.cpp
void norm_forward(const NormForward& args, int threads);
void norm_backward(const NormBackward& args, int threads);
// optimizer.cpp
void adamw(const AdamW& args, int threads);
void sgd(const Sgd& args, int threads);
// reduction.cpp
void column_sum(const ColumnSum& args, int threads);
void sum_of_squares(const SumOfSquares& args, int threads);
void reduce_ranks(const ReduceRanks& args, int threads);

}  // namespace tandem::cpu
