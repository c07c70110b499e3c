#include "core/kernel_checks.h"

#include <source_location>

namespace tandem {
namespace {

using Where = std::source_location;

void check_dense(const Tensor& tensor, const Shape& shape, const char* what,
                 Where where = Where::current()) {
  ensure(tensor.shape == shape && tensor.is_contiguous(), what, where);
}

void check_rows(const Tensor& tensor, const char* what, Where where = Where::current()) {
  ensure(tensor.rank() == 2 && tensor.is_contiguous(), what, where);
}

void check_optional(const Tensor& tensor, const Shape& shape, const char* what,
                    Where where = Where::current()) {
  if (!tensor.absent()) {
    check_dense(tensor, shape, what, where);
  }
}

void check_scalar(const Tensor& tensor, Where where = Where::current()) {
  ensure(tensor.dtype == DType::kF64 && tensor.numel() == 1, "a float64 scalar is wanted", where);
}

void check_row_keys(const Tensor& keys, std::int64_t rows, const Dropout& dropout,
                    Where where = Where::current()) {
  ensure(dropout.p >= 0.0 && dropout.p < 1.0, "dropout's p must be in [0, 1)", where);
  if (dropout.p > 0.0) {
    check_dense(keys, {rows}, "dropout wants one row key for each row", where);
    ensure(keys.dtype == DType::kI64, "row keys are int64", where);
  }
}

}  // namespace

void check(const Gemm& args) {
  const auto matrix = [](const Tensor& t) {
    return t.rank() == 2 && (t.numel() == 0 || t.dim(1) == 1 || t.strides[1] == 1);
  };
  ensure(matrix(args.a) && matrix(args.b) && matrix(args.c), "gemm wants row-major matrices");
  const std::int64_t k = args.inner();
  ensure(args.c.dim(0) == args.a.dim(args.transpose_a ? 1 : 0), "gemm: rows of a and c differ");
  ensure(args.c.dim(1) == args.b.dim(args.transpose_b ? 0 : 1), "gemm: columns of b and c differ");
  ensure(k == args.b.dim(args.transpose_b ? 1 : 0), "gemm: contractions of a and b differ");
  ensure(args.a.dtype == args.b.dtype, "gemm: types of a and b differ");
  check_optional(args.bias, {args.c.dim(1)}, "gemm: bias is not [n]");
  ensure(args.bias.absent() || args.write == Write::kOverwrite, "gemm: bias while accumulating");
}

void check(const ActivationForward& args) {
  check_rows(args.out, "activation: out");
  const std::int64_t parts = args.kind == Activation::kSwiglu ? 2 : 1;
  check_dense(args.pre, {args.out.dim(0), parts * args.out.dim(1)}, "activation: pre");
}

void check(const ActivationBackward& args) {
  check_rows(args.d_out, "activation: d_out");
  const std::int64_t parts = args.kind == Activation::kSwiglu ? 2 : 1;
  check_dense(args.pre, {args.d_out.dim(0), parts * args.d_out.dim(1)}, "activation: pre");
  check_dense(args.d_pre, args.pre.shape, "activation: d_pre");
}

void check(const GemmActivation& args) {
  check(args.gemm);
  ensure(args.gemm.write == Write::kOverwrite, "gemm_activation: accumulates");
  check(ActivationForward{.kind = args.kind, .pre = args.gemm.c, .out = args.out});
}

void check(const GemmActivationBackward& args) {
  check(args.gemm);
  ensure(args.gemm.write == Write::kOverwrite && args.gemm.bias.absent(),
         "gemm_activation_backward: accumulates, or has a bias");
  check(ActivationBackward{
      .kind = args.kind, .pre = args.pre, .d_out = args.gemm.c, .d_pre = args.d_pre});
  ensure(args.kind != Activation::kSwiglu || args.d_pre.data != args.gemm.c.data,
         "gemm_activation_backward: swiglu's d_pre is wider than d_out");
}

void check(const GemmBiasGradient& args) {
  check(args.gemm);
  ensure(args.gemm.transpose_a && args.gemm.bias.absent(),
         "gemm_bias_gradient: not a weight gradient");
  check(ColumnSum{.x = args.gemm.a, .out = args.d_bias, .write = args.gemm.write});
}

void check(const NormForward& args) {
  check_rows(args.x, "norm: x");
  check_dense(args.y, args.x.shape, "norm: y");
  check_dense(args.weight, {args.x.dim(1)}, "norm: weight");
  check_optional(args.bias, {args.x.dim(1)}, "norm: bias");
  check_dense(args.rstd, {args.x.dim(0)}, "norm: rstd");
  if (args.kind == NormKind::kLayerNorm) {
    check_dense(args.mean, {args.x.dim(0)}, "norm: mean");
  }
}

void check(const NormBackward& args) {
  check_rows(args.x, "norm: x");
  check_dense(args.d_y, args.x.shape, "norm: d_y");
  check_dense(args.d_x, args.x.shape, "norm: d_x");
  check_optional(args.residual, args.x.shape, "norm: residual");
  check_dense(args.weight, {args.x.dim(1)}, "norm: weight");
  check_dense(args.d_weight, {args.x.dim(1)}, "norm: d_weight");
  check_optional(args.d_bias, {args.x.dim(1)}, "norm: d_bias");
  check_dense(args.rstd, {args.x.dim(0)}, "norm: rstd");
  if (args.kind == NormKind::kLayerNorm) {
    check_dense(args.mean, {args.x.dim(0)}, "norm: mean");
  }
}

void check(const EmbeddingForward& args) {
  check_rows(args.ids, "embedding: ids");
  ensure(args.ids.dtype == DType::kI32, "embedding: ids are int32");
  ensure(args.table.rank() == 3 && args.table.is_contiguous(), "embedding: table");
  ensure(args.table.dim(0) == args.ids.dim(1), "embedding: contexts of table and ids differ");
  check_dense(args.y, {args.ids.dim(0), args.table.dim(2)}, "embedding: y");
}

void check(const EmbeddingBackward& args) {
  check_rows(args.ids, "embedding: ids");
  ensure(args.ids.dtype == DType::kI32, "embedding: ids are int32");
  ensure(args.d_table.rank() == 3 && args.d_table.is_contiguous(), "embedding: d_table");
  ensure(args.d_table.dim(0) == args.ids.dim(1), "embedding: contexts of d_table and ids differ");
  check_dense(args.d_y, {args.ids.dim(0), args.d_table.dim(2)}, "embedding: d_y");
  ensure(
      args.workspace.dtype == DType::kI32 && args.workspace.is_contiguous() &&
          args.workspace.numel() >= args.ids.dim(1) * (args.ids.dim(0) + args.d_table.dim(1) + 1),
      "embedding: workspace");
}

void check(const CrossEntropyMax& args) {
  check_rows(args.logits, "cross-entropy: logits");
  check_dense(args.row_max, {args.logits.dim(0)}, "cross-entropy: row_max");
  ensure(args.valid_columns >= 0 && args.valid_columns <= args.logits.dim(1),
         "cross-entropy: valid_columns");
}

void check(const CrossEntropySums& args) {
  check_rows(args.logits, "cross-entropy: logits");
  check_dense(args.targets, {args.logits.dim(0)}, "cross-entropy: targets");
  ensure(args.targets.dtype == DType::kI32, "cross-entropy: targets are int32");
  check_dense(args.row_max, {args.logits.dim(0)}, "cross-entropy: row_max");
  check_dense(args.sums, {args.logits.dim(0), 2}, "cross-entropy: sums");
  ensure(args.valid_columns >= 0 && args.valid_columns <= args.logits.dim(1),
         "cross-entropy: valid_columns");
}

void check(const CrossEntropyBackward& args) {
  check_rows(args.logits, "cross-entropy: logits");
  check_dense(args.targets, {args.logits.dim(0)}, "cross-entropy: targets");
  ensure(args.targets.dtype == DType::kI32, "cross-entropy: targets are int32");
  check_dense(args.row_max, {args.logits.dim(0)}, "cross-entropy: row_max");
  check_dense(args.sums, {args.logits.dim(0), 2}, "cross-entropy: sums");
  check_optional(args.d_logits, args.logits.shape, "cross-entropy: d_logits");
  check_scalar(args.loss_sum);
  ensure(args.valid_columns >= 0 && args.valid_columns <= args.logits.dim(1),
         "cross-entropy: valid_columns");
}

void check(const MeanSquaredError& args) {
  check_rows(args.y, "mean squared error: y");
  check_dense(args.target, args.y.shape, "mean squared error: target");
  check_optional(args.d_y, args.y.shape, "mean squared error: d_y");
  check_scalar(args.loss_sum);
}

void check(const BiasDropoutAdd& args) {
  check_rows(args.branch, "bias_dropout_add: branch");
  check_dense(args.residual, args.branch.shape, "bias_dropout_add: residual");
  check_dense(args.out, args.branch.shape, "bias_dropout_add: out");
  check_optional(args.bias, {args.branch.dim(1)}, "bias_dropout_add: bias");
  check_row_keys(args.row_keys, args.branch.dim(0), args.dropout);
}

void check(const DropoutBackward& args) {
  check_rows(args.d_out, "dropout: d_out");
  check_dense(args.d_in, args.d_out.shape, "dropout: d_in");
  check_row_keys(args.row_keys, args.d_out.dim(0), args.dropout);
}

void check(const ColumnSum& args) {
  check_rows(args.x, "column_sum: x");
  check_dense(args.out, {args.x.dim(1)}, "column_sum: out");
}

void check(const SumOfSquares& args) {
  ensure(args.x.is_contiguous(), "sum_of_squares: x");
  check_scalar(args.out);
}

void check(const AdamW& args) {
  ensure(args.master.is_contiguous(), "adamw: master");
  check_dense(args.m, args.master.shape, "adamw: m");
  check_dense(args.v, args.master.shape, "adamw: v");
  check_dense(args.grad, args.master.shape, "adamw: grad");
  check_optional(args.weight, args.master.shape, "adamw: weight");
  ensure(args.update >= 1, "adamw: updates count from 1");
}

void check(const Sgd& args) {
  ensure(args.master.is_contiguous(), "sgd: master");
  check_dense(args.buffer, args.master.shape, "sgd: buffer");
  check_dense(args.grad, args.master.shape, "sgd: grad");
  check_optional(args.weight, args.master.shape, "sgd: weight");
  ensure(args.update >= 1, "sgd: updates count from 1");
}

void check(const ReduceRanks& args) {
  ensure(!args.inputs.empty(), "reduce_ranks: no inputs");
  const Tensor& first = args.inputs.front();
  for (const auto* tensors : {&args.inputs, &args.outputs}) {
    for (const Tensor& t : *tensors) {
      ensure(t.dtype == first.dtype && t.numel() == first.numel() && t.is_contiguous(),
             "reduce_ranks: tensors differ");
    }
  }
}

void check_cast(const Tensor& from, const Tensor& to) {
  ensure(from.shape == to.shape && from.is_contiguous() && to.is_contiguous(),
         "cast between different shapes");
}

}  // namespace tandem
