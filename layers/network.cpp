#include "layers/network.h"

#include <algorithm>
#include <cmath>

namespace tandem {

Network::Network(ParameterStore& store, const NetworkOptions& options)
    : options_(options), region_("network", options.sequence_parallel) {
  if (options.language_model) {
    embedding_.emplace(store,
                       ContextEmbedding::Options{.name = "embed",
                                                 .context = options.context,
                                                 .vocab = options.vocab,
                                                 .hidden = options.hidden,
                                                 .sequence_parallel = options.sequence_parallel});
  }
  // GPT-2's rule: the sum of `layers` residual branches keeps the variance of one.
  const double fc2_init_std = 0.02 / std::sqrt(2.0 * static_cast<double>(options.layers));
  for (std::int64_t i = 0; i < options.layers; ++i) {
    blocks_.emplace_back(store, MlpBlock::Options{.name = "layers." + std::to_string(i),
                                                  .index = static_cast<std::uint32_t>(i),
                                                  .hidden = options.hidden,
                                                  .ffn = options.ffn,
                                                  .activation = options.activation,
                                                  .norm = options.norm,
                                                  .norm_eps = options.norm_eps,
                                                  .bias = options.bias,
                                                  .sequence_parallel = options.sequence_parallel,
                                                  .fc2_init_std = fc2_init_std});
  }
  if (options.language_model) {
    head_.emplace(store, LmHead::Options{.hidden = options.hidden,
                                         .vocab = options.vocab,
                                         .norm = options.norm,
                                         .norm_eps = options.norm_eps,
                                         .sequence_parallel = options.sequence_parallel});
  }
}

void Network::allocate(Arena& arena, const Precision& precision, const Layout& layout) {
  const BlockShape shape = {
      .max_rows = options_.max_rows,
      .shard_rows = options_.sequence_parallel ? options_.max_rows / layout.tp : options_.max_rows,
      .hidden = options_.hidden,
      .local_ffn = options_.ffn / layout.tp,
      .sequence_parallel = options_.sequence_parallel,
      .dropout = options_.dropout};
  if (embedding_) {
    embedding_context_ =
        embedding_->make_context(arena, precision, shape.max_rows, shape.shard_rows);
  }
  for (const MlpBlock& block : blocks_) {
    block_contexts_.push_back(block.make_context(arena, precision, shape));
  }
  if (head_) {
    head_context_ = head_->make_context(arena, precision, shape);
  }
  scratch_ = BlockScratch(arena, precision, shape);
  gradient_ = arena.allocate(MemoryCategory::kWorkspace, "residual gradient", precision.storage,
                             {shape.shard_rows, shape.hidden});
}

void Network::forward(const Pass& pass, const NetworkInput& input, double scale,
                      const Tensor& loss_sum) {
  const ProfileRange range(pass.rank->profiler, "forward");
  Tensor x = embedding_ ? embedding_->forward(pass, embedding_context_, input.ids)
                        : region_.shard_of(pass, input.input);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    x = blocks_[i].forward(pass, block_contexts_[i], scratch_, x);
  }
  if (head_) {
    head_->forward(pass, head_context_, scratch_, x, input.targets, scale, loss_sum);
  } else {
    mean_squared_error(pass, x, input, scale, loss_sum);
  }
}

void Network::mean_squared_error(const Pass& pass, const Tensor& y, const NetworkInput& input,
                                 double scale, const Tensor& loss_sum) {
  const ProfileRange range(pass.rank->profiler, {"squared error", {}, pass.rows});
  // Rows that count come first in the micro-batch; of those, this rank's shard holds `counted`.
  const std::int64_t shard = region_.shard_rows(pass);
  const std::int64_t start = options_.sequence_parallel ? pass.rank->layout.tp_rank() * shard : 0;
  const std::int64_t counted = std::clamp<std::int64_t>(input.tokens - start, 0, shard);
  const Tensor gradient = gradient_.first(shard);
  pass.device().mean_squared_error(pass.compute(),
                                   {.y = y.first(counted),
                                    .target = region_.shard_of(pass, input.expected).first(counted),
                                    .d_y = scale == 0.0 ? Tensor() : gradient.first(counted),
                                    .loss_sum = loss_sum,
                                    .scale = scale});
  if (scale != 0.0) {
    pass.device().fill_zero(pass.compute(), gradient.slice(0, counted, shard - counted));
  }
}

void Network::backward(const Pass& pass) {
  const ProfileRange range(pass.rank->profiler, "backward");
  const Tensor gradient = gradient_.first(region_.shard_rows(pass));
  if (head_) {
    head_->backward(pass, head_context_, scratch_, gradient);
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i].backward(pass, block_contexts_[i], scratch_, gradient);
  }
  if (embedding_) {
    embedding_->backward(pass, embedding_context_, gradient);
  }
}

std::int64_t Network::matmul_parameters() const {
  const std::int64_t fc1_parts = options_.activation == Activation::kSwiglu ? 2 : 1;
  const std::int64_t block = (fc1_parts + 1) * options_.hidden * options_.ffn;
  return options_.layers * block + (options_.language_model ? options_.hidden * options_.vocab : 0);
}

}  // namespace tandem
