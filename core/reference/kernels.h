// The reference device's kernels: the readable definition of each, one file per family. Arguments
// are already checked. `threads` splits rows (or columns); it never changes a bit.
#pragma once

#include "core/device.h"
#include "core/host_memory.h"

namespace tandem::reference {

// gemm.cpp
void gemm(const Gemm& args, int threads, HostScratch& scratch);
// elementwise.cpp
void cast(const Tensor& from, const Tensor& to, int threads);
void activation_forward(const ActivationForward& args, int threads);
void activation_backward(const ActivationBackward& args, int threads);
void bias_dropout_add(const BiasDropoutAdd& args, int threads);
void dropout_backward(const DropoutBackward& args, int threads);
// norm.cpp
void norm_forward(const NormForward& args, int threads);
void norm_backward(const NormBackward& args, int threads, HostScratch& scratch);
// embedding.cpp
void embedding_forward(const EmbeddingForward& args, int threads);
void embedding_backward(const EmbeddingBackward& args, int threads, HostScratch& scratch);
// loss.cpp
void cross_entropy_max(const CrossEntropyMax& args, int threads);
void cross_entropy_sums(const CrossEntropySums& args, int threads);
void cross_entropy_backward(const CrossEntropyBackward& args, int threads);
void mean_squared_error(const MeanSquaredError& args, int threads);
// reduction.cpp
void column_sum(const ColumnSum& args, int threads, HostScratch& scratch);
void sum_of_squares(const SumOfSquares& args);
void reduce_ranks(const ReduceRanks& args, int threads);
// optimizer.cpp
void adamw(const AdamW& args, int threads);
void sgd(const Sgd& args, int threads);

}  // namespace tandem::reference
