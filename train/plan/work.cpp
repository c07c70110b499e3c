#include "train/plan/work.h"

namespace tandem {

namespace {

struct Kernels {
  std::string_view forward, backward;
};

Kernels kernels_of(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return {"gelu", "gelu backward"};
    case Activation::kSwiglu:
      return {"swiglu", "swiglu backward"};
    case Activation::kRelu:
      return {"relu", "relu backward"};
  }
  return {};
}

}  // namespace

RankWork::RankWork(const Config& config, const Layout& layout, const Precision& precision,
                   double rows, bool gpu)
    : rows_(rows),
      shard_(config.parallel.sequence_parallel ? rows / layout.tp : rows),
      hidden_(static_cast<double>(config.model.hidden)),
      ffn_(static_cast<double>(config.model.ffn / layout.tp)),
      fc1_out_(config.model.activation == Activation::kSwiglu ? 2.0 * ffn_ : ffn_),
      vocab_(static_cast<double>((config.model.vocab_size + layout.tp - 1) / layout.tp)),
      context_(static_cast<double>(config.model.context)),
      storage_(static_cast<double>(size_of(precision.storage))),
      main_(static_cast<double>(size_of(precision.main))),
      activation_(config.model.activation),
      dropout_(config.model.dropout > 0.0),
      language_model_(config.model.kind == ModelKind::kMlpLm),
      fused_(gpu && config.model.activation == Activation::kGelu) {}

std::vector<RangeWork> RankWork::all() const {
  std::vector<RangeWork> works = {norm(),          fc1(),
                                  activation(),    fc2(),
                                  residual(),      dropout_backward(),
                                  fc2_dgrad(),     fc1_dgrad(),
                                  fc2_wgrad(),     fc1_wgrad(),
                                  norm_backward(), fetch(),
                                  upload(),        activation_backward()};
  if (language_model_) {
    works.insert(works.end(),
                 {embed(), embed_backward(), head(), cross_entropy(), head_dgrad(), head_wgrad()});
  } else {
    works.push_back(squared_error());
  }
  std::erase_if(works, [](const RangeWork& work) { return work.flops + work.bytes == 0.0; });
  return works;
}

RangeWork RankWork::forward(std::string_view range, double out, double in,
                            double more_bytes) const {
  const MatmulSize size = {MatmulKind::kForward, rows_, out, in};
  return {range, size.flops(), storage_ * (rows_ * in + in * out + rows_ * out) + more_bytes, size,
          more_bytes};
}
RangeWork RankWork::dgrad(std::string_view range, double out, double in, double more_bytes) const {
  const MatmulSize size = {MatmulKind::kInputGradient, rows_, out, in};
  return {range, size.flops(), storage_ * (rows_ * in + in * out + rows_ * out) + more_bytes, size,
          more_bytes};
}
RangeWork RankWork::wgrad(std::string_view range, double out, double in, double more_bytes) const {
  // Sums in the main type, read and written.
  const MatmulSize size = {MatmulKind::kWeightGradient, rows_, out, in};
  return {range, size.flops(), storage_ * rows_ * (in + out) + 2.0 * main_ * in * out + more_bytes,
          size, more_bytes};
}

RangeWork RankWork::norm() const { return {"norm", 0.0, 2.0 * shard_ * hidden_ * storage_}; }
RangeWork RankWork::fc1() const {
  return forward("fc1 gemm", fc1_out_, hidden_, fused_ ? storage_ * rows_ * ffn_ : 0.0);
}
RangeWork RankWork::activation() const {
  return {.range = "activation",
          .bytes = fused_ ? 0.0 : storage_ * rows_ * (fc1_out_ + ffn_),
          .kernel = kernels_of(activation_).forward};
}
RangeWork RankWork::fc2() const { return forward("fc2 gemm", hidden_, ffn_, 0.0); }
RangeWork RankWork::residual() const {
  // With dropout it draws random numbers, which takes several times as long.
  return {.range = "bias, dropout, residual",
          .bytes = 3.0 * shard_ * hidden_ * storage_,
          .kernel = dropout_ ? "" : "bias, residual"};
}
RangeWork RankWork::dropout_backward() const {
  return {"dropout backward", 0.0, dropout_ ? 2.0 * shard_ * hidden_ * storage_ : 0.0};
}
RangeWork RankWork::fc2_dgrad() const {
  return dgrad("fc2 dgrad", hidden_, ffn_, fused_ ? storage_ * rows_ * fc1_out_ : 0.0);
}
RangeWork RankWork::activation_backward() const {
  return {.range = "activation backward",
          .bytes = fused_ ? 0.0 : storage_ * rows_ * (ffn_ + 2.0 * fc1_out_),
          .kernel = kernels_of(activation_).backward};
}
RangeWork RankWork::fc1_dgrad() const { return dgrad("fc1 dgrad", fc1_out_, hidden_, 0.0); }
RangeWork RankWork::fc2_wgrad() const {
  // The bias sums the gradient once more.
  return wgrad("fc2 wgrad", hidden_, ffn_, storage_ * shard_ * hidden_);
}
RangeWork RankWork::fc1_wgrad() const {
  return wgrad("fc1 wgrad", fc1_out_, hidden_, storage_ * rows_ * fc1_out_);
}
RangeWork RankWork::norm_backward() const {
  return {"norm backward", 0.0, 4.0 * shard_ * hidden_ * storage_};
}

RangeWork RankWork::fetch() const {
  return {
      .range = "fetch",
      .bytes = language_model_ ? rows_ * (4.0 * context_ + 12.0) : 2.0 * rows_ * storage_ * hidden_,
      .kernel = language_model_ ? "" : "fetch of noise"};
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
RangeWork RankWork::head() const { return forward("head gemm", vocab_, hidden_, 0.0); }
RangeWork RankWork::cross_entropy() const {
  return {"cross-entropy", 0.0, 4.0 * storage_ * rows_ * vocab_};
}
RangeWork RankWork::head_dgrad() const { return dgrad("head dgrad", vocab_, hidden_, 0.0); }
RangeWork RankWork::head_wgrad() const { return wgrad("head wgrad", vocab_, hidden_, 0.0); }
RangeWork RankWork::squared_error() const {
  return {"squared error", 0.0, 3.0 * storage_ * shard_ * hidden_};
}

RangeWork gradient_norm_work(const Precision& precision, double parameters) {
  return {"finish gradients", 0.0, parameters * static_cast<double>(size_of(precision.main))};
}
RangeWork update_work(const Config& config, const Precision& precision, double parameters) {
  // Reads gradients, reads and writes masters and moments, writes weights.
  const auto main = static_cast<double>(size_of(precision.main));
  const double moments = config.optim.kind == OptimizerKind::kAdamW ? 2.0 : 1.0;
  const double weights =
      precision.storage == precision.main ? 0.0 : static_cast<double>(size_of(precision.storage));
  return {"optimizer", 0.0, parameters * (main * (1.0 + 2.0 + 2.0 * moments) + weights)};
}

}  // namespace tandem
