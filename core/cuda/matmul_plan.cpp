#include "core/cuda/matmul_plan.h"

#include <algorithm>
#include <bit>

namespace tandem::cuda {
namespace {

std::int64_t leading_dimension(const Tensor& matrix) {
  // The stride of a single row is nobody's, but must not be less than its length.
  return matrix.dim(0) == 1 ? matrix.dim(1) : std::max(matrix.strides[0], matrix.dim(1));
}

constexpr int kVectorAlignment = 16;
/// What NCCL takes on a host with eight GPUs and as many network cards, by its maintainers' word
/// (NVIDIA/nccl issue 689).
constexpr int kCollectiveSms = 16;

int alignment_of(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  int alignment = 256;
  while (address % static_cast<std::uintptr_t>(alignment) != 0) {
    alignment /= 2;
  }
  return alignment;
}

MatmulCall describe_plain(const Gemm& args, const MatmulSettings& settings) {
  MatmulCall matmul;
  MatmulDescription& d = matmul.description;
  d.m = args.c.dim(1);
  d.n = args.c.dim(0);
  d.k = args.inner();
  // op(c^T) = op(b)^T op(a)^T, and a row-major matrix read by column is its transpose already.
  d.transpose_a = args.transpose_b;
  d.transpose_b = args.transpose_a;
  d.lda = leading_dimension(args.b);
  d.ldb = leading_dimension(args.a);
  d.ldd = leading_dimension(args.c);
  d.input = args.a.dtype;
  d.output = args.c.dtype;
  d.accumulate = args.write == Write::kAccumulate;
  d.tf32 = settings.tf32 && args.a.dtype == DType::kF32;
  d.sm_count = args.beside_collective ? settings.sms_beside_collective : 0;
  matmul.operands = {.a = args.b.data, .b = args.a.data, .d = args.c.data};
  return matmul;
}

void set_bias(MatmulCall& matmul, DType type, void* bias) {
  matmul.description.bias = type;
  matmul.operands.bias = bias;
}

void set_output(MatmulCall& matmul, const Tensor& out) {
  matmul.description.ldd = leading_dimension(out);
  matmul.operands.d = out.data;
}

void set_aux(MatmulCall& matmul, const Tensor& aux) {
  matmul.description.ld_aux = leading_dimension(aux);
  matmul.operands.aux = aux.data;
}

MatmulCall with_alignments(MatmulCall matmul) {
  matmul.description.alignment_a = alignment_of(matmul.operands.a);
  matmul.description.alignment_b = alignment_of(matmul.operands.b);
  matmul.description.alignment_d = alignment_of(matmul.operands.d);
  matmul.description.alignment_bias = alignment_of(matmul.operands.bias);
  matmul.description.alignment_aux = alignment_of(matmul.operands.aux);
  return matmul;
}

const char* name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return "";
    case Epilogue::kBias:
      return ", bias";
    case Epilogue::kGeluAux:
      return ", gelu";
    case Epilogue::kGeluAuxBias:
      return ", bias and gelu";
    case Epilogue::kDGelu:
      return ", gelu backward";
    case Epilogue::kBiasGradB:
      return ", bias gradient";
  }
  return "";
}

}  // namespace

std::string MatmulDescription::to_string() const {
  return "[" + std::to_string(n) + ", " + std::to_string(m) + "] over " + std::to_string(k) + ", " +
         std::string(tandem::name_of(input)) + " to " + std::string(tandem::name_of(output)) +
         (accumulate ? ", added" : "") + name_of(epilogue);
}

int sms_beside_collective(int sms) { return sms > 4 * kCollectiveSms ? sms - kCollectiveSms : 0; }

MatmulCall describe(const Gemm& args, const MatmulSettings& settings) {
  MatmulCall matmul = describe_plain(args, settings);
  if (!args.bias.absent()) {
    matmul.description.epilogue = Epilogue::kBias;
    set_bias(matmul, args.bias.dtype, args.bias.data);
  }
  return with_alignments(matmul);
}

MatmulCall describe(const GemmActivation& args, const MatmulSettings& settings) {
  ensure(args.kind == Activation::kGelu, "only gelu has an epilogue");
  MatmulCall matmul = describe_plain(args.gemm, settings);
  set_aux(matmul, args.gemm.c);
  set_output(matmul, args.out);
  matmul.description.epilogue = Epilogue::kGeluAux;
  if (!args.gemm.bias.absent()) {
    matmul.description.epilogue = Epilogue::kGeluAuxBias;
    set_bias(matmul, args.gemm.bias.dtype, args.gemm.bias.data);
  }
  return with_alignments(matmul);
}

MatmulCall describe(const GemmActivationBackward& args, const MatmulSettings& settings) {
  ensure(args.kind == Activation::kGelu, "only gelu has an epilogue");
  ensure(args.d_pre.data != args.pre.data, "the epilogue does not work in place");
  MatmulCall matmul = describe_plain(args.gemm, settings);
  set_aux(matmul, args.pre);
  set_output(matmul, args.d_pre);
  matmul.description.epilogue = Epilogue::kDGelu;
  return with_alignments(matmul);
}

MatmulCall describe(const GemmBiasGradient& args, void* bias_gradient,
                    const MatmulSettings& settings) {
  MatmulCall matmul = describe_plain(args.gemm, settings);
  matmul.description.epilogue = Epilogue::kBiasGradB;
  set_bias(matmul, matmul.description.output, bias_gradient);
  return with_alignments(matmul);
}

MatmulDescription tuning_class(MatmulDescription description) {
  for (std::int64_t* size : {&description.m, &description.n, &description.k}) {
    *size = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(*size)));
  }
  return description;
}

bool can_fuse(const MatmulCall& matmul) {
  const MatmulDescription& d = matmul.description;
  const bool bias = matmul.operands.bias == nullptr ||
                    (d.bias == d.output && d.alignment_bias >= kVectorAlignment);
  const bool aux =
      matmul.operands.aux == nullptr || (d.ld_aux % 8 == 0 && d.alignment_aux >= kVectorAlignment);
  return bias && aux;
}

}  // namespace tandem::cuda
