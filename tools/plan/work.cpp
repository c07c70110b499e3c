#include "tools/plan/work.h"

namespace tandem {

RankWork::RankWork(const Config& config, const Layout& layout, const Precision& precision,
                   double rows)
    : rows_(rows),
      shard_(config.parallel.sequence_parallel ? rows / layout.tp : rows),
      hidden_(static_cast<double>(config.model.hidden)),
      ffn_(static_cast<double>(config.model.ffn / layout.tp)),
      fc1_out_(config.model.activation == Activation::kSwiglu ? 2.0 * ffn_ : ffn_),
      vocab_(static_cast<double>((config.model.vocab_size + layout.tp - 1) / layout.tp)),
      context_(static_cast<double>(config.model.context)),
      storage_(static_cast<double>(size_of(precision.storage))),
      main_(static_cast<double>(size_of(precision.main))),
      dropout_(config.model.dropout > 0.0),
      language_model_(config.model.kind == ModelKind::kMlpLm) {}

RangeWork RankWork::gemm(std::string_view range, double m, double n, double k,
                         double more_bytes) const {
  return {range, 2.0 * m * n * k, storage_ * (m * k + k * n + m * n) + more_bytes};
}

RangeWork RankWork::norm() const { return {"norm", 0.0, 2.0 * shard_ * hidden_ * storage_}; }
RangeWork RankWork::fc1() const {
  return gemm("fc1 gemm, activation", rows_, fc1_out_, hidden_, storage_ * rows_ * ffn_);
}
RangeWork RankWork::fc2() const { return gemm("fc2 gemm", rows_, hidden_, ffn_, 0.0); }
RangeWork RankWork::residual() const {
  return {"bias, dropout, residual", 0.0, 3.0 * shard_ * hidden_ * storage_};
}
RangeWork RankWork::dropout_backward() const {
  return {"dropout backward", 0.0, dropout_ ? 2.0 * shard_ * hidden_ * storage_ : 0.0};
}
RangeWork RankWork::fc2_dgrad() const {
  return gemm("fc2 dgrad, activation", rows_, ffn_, hidden_, 2.0 * storage_ * rows_ * fc1_out_);
}
RangeWork RankWork::fc1_dgrad() const { return gemm("fc1 dgrad", rows_, hidden_, fc1_out_, 0.0); }
RangeWork RankWork::fc2_wgrad() const {
  // Sums in the main type, read and written; the bias sums the gradient once more.
  return gemm("fc2 wgrad", hidden_, ffn_, rows_,
              (2.0 * main_ - storage_) * hidden_ * ffn_ + storage_ * shard_ * hidden_);
}
RangeWork RankWork::fc1_wgrad() const {
  return gemm("fc1 wgrad", fc1_out_, hidden_, rows_, (2.0 * main_ - storage_) * fc1_out_ * hidden_);
}
RangeWork RankWork::norm_backward() const {
  return {"norm backward", 0.0, 4.0 * shard_ * hidden_ * storage_};
}

RangeWork RankWork::upload() const {
  return {"upload", 0.0,
          language_model_ ? 2.0 * rows_ * (4.0 * context_ + 12.0)
                          : 2.0 * rows_ * (2.0 * storage_ * hidden_ + 8.0)};
}
RangeWork RankWork::embed() const {
  return {"embed forward", 0.0, storage_ * rows_ * hidden_ * (context_ + 1.0)};
}
RangeWork RankWork::embed_backward() const {
  return {"embed backward", 0.0,
          storage_ * rows_ * hidden_ * context_ + 2.0 * main_ * context_ * vocab_ * hidden_};
}
RangeWork RankWork::head() const { return gemm("head gemm", rows_, vocab_, hidden_, 0.0); }
RangeWork RankWork::cross_entropy() const {
  return {"cross-entropy", 0.0, 4.0 * storage_ * rows_ * vocab_};
}
RangeWork RankWork::head_dgrad() const { return gemm("head dgrad", rows_, hidden_, vocab_, 0.0); }
RangeWork RankWork::head_wgrad() const {
  return gemm("head wgrad", vocab_, hidden_, rows_, (2.0 * main_ - storage_) * vocab_ * hidden_);
}
RangeWork RankWork::squared_error() const {
  return {"squared error", 0.0, 3.0 * storage_ * shard_ * hidden_};
}

}  // namespace tandem
