// What is asked of cuBLAS for a product, as plain values: a host function of the arguments, tested
// without a GPU, and the key under which a tuned plan is kept. cuBLAS counts matrices by column, so
// the row-major c = op(a) op(b) is asked for as its transpose: D = op(A) op(B) with A our b, B our
// a, and D [n, m] by column the same memory as c [m, n] by row.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "core/device.h"

namespace tandem::cuda {

/// What is done to the product before it is written (cuBLASLt's names).
enum class Epilogue {
  kNone,
  kBias,         ///< D = product + bias, one for each row of D
  kGeluAux,      ///< aux = product, D = gelu(aux)
  kGeluAuxBias,  ///< aux = product + bias, D = gelu(aux)
  kDGelu,        ///< D = product * gelu'(aux)
  kBiasGradB,    ///< D = product (+ C), bias = sums of op(B) over the contraction
};

/// Everything a plan depends on. Sizes and leading dimensions are in elements and by column.
struct MatmulDescription {
  std::int64_t m = 0, n = 0, k = 0;  ///< D [m, n]
  bool transpose_a = false, transpose_b = false;
  std::int64_t lda = 0, ldb = 0;
  std::int64_t ldd = 0;     ///< of C, too: where there is one, it is D
  std::int64_t ld_aux = 0;  ///< 0 without aux
  DType input = DType::kF32;
  DType output = DType::kF32;
  DType bias = DType::kF32;  ///< fp32 also where there is none
  bool accumulate = false;   ///< beta = 1, else 0
  bool tf32 = false;
  int sm_count = 0;  ///< multiprocessors to spread over; 0: all
  Epilogue epilogue = Epilogue::kNone;
  /// Largest powers of two, up to 256, that divide the addresses.
  int alignment_a = 0, alignment_b = 0, alignment_d = 0, alignment_bias = 0, alignment_aux = 0;

  auto operator<=>(const MatmulDescription&) const = default;
  /// "[4096, 1024] over 512, bf16 to fp32, bias"
  std::string to_string() const;
};

/// The products that share one tuning: of the same sizes up to the next powers of two, all else
/// equal. Micro-batches of every number of rows would else be tuned one by one, in mid-training.
MatmulDescription tuning_class(MatmulDescription description);

struct MatmulOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  void* bias = nullptr;  ///< read by kBias and kGeluAuxBias, written by kBiasGradB
  void* aux = nullptr;   ///< written by kGeluAux and kGeluAuxBias, read by kDGelu
};

struct MatmulCall {
  MatmulDescription description;
  MatmulOperands operands;
};

/// What is the same for all products of a device.
struct MatmulSettings {
  bool tf32 = false;              ///< fp32 inputs may be rounded
  int sms_beside_collective = 0;  ///< multiprocessors for products beside a collective; 0: all
};

/// Of a GPU's `sms` multiprocessors, those that a product may fill while a collective runs. NCCL's
/// blocks share a multiprocessor with nobody: a product with a block for each would run in two
/// waves, the second for the few blocks that NCCL kept out.
int sms_beside_collective(int sms);

/// Arguments already checked; every size is at least 1.
MatmulCall describe(const Gemm& args, const MatmulSettings& settings);
/// For gelu only.
MatmulCall describe(const GemmActivation& args, const MatmulSettings& settings);
/// For gelu only; d_pre must not be pre's memory.
MatmulCall describe(const GemmActivationBackward& args, const MatmulSettings& settings);
/// The sums of args.gemm.a go to `bias_gradient` [m] in c's type, overwritten whatever gemm.write.
MatmulCall describe(const GemmBiasGradient& args, void* bias_gradient,
                    const MatmulSettings& settings);

/// Whether cuBLASLt can be asked for it: the bias has D's type, it and aux start on 16 bytes, and
/// the columns of aux lie a multiple of 8 elements apart. Else the steps are run one by one.
bool can_fuse(const MatmulCall& matmul);

}  // namespace tandem::cuda
