// The shape and type contracts of device.h's argument structs, checked alike by every device.
#pragma once

#include "core/device.h"

namespace tandem {

/// Each throws InternalError if the arguments break the struct's contract.
void check(const Gemm& args);
void check(const GemmActivation& args);
void check(const GemmActivationBackward& args);
void check(const GemmBiasGradient& args);
void check(const ActivationForward& args);
void check(const ActivationBackward& args);
void check(const NormForward& args);
void check(const NormBackward& args);
void check(const EmbeddingForward& args);
void check(const EmbeddingBackward& args);
void check(const CrossEntropyMax& args);
void check(const CrossEntropySums& args);
void check(const CrossEntropyBackward& args);
void check(const MeanSquaredError& args);
void check(const BiasDropoutAdd& args);
void check(const DropoutBackward& args);
void check(const ColumnSum& args);
void check(const SumOfSquares& args);
void check(const AdamW& args);
void check(const Sgd& args);
void check(const ReduceRanks& args);
void check_cast(const Tensor& from, const Tensor& to);

}  // namespace tandem
