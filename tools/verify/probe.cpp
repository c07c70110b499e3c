#include "tools/verify/probe.h"

#include <algorithm>
#include <set>

#include "core/philox.h"
#include "tools/verify/host_values.h"

namespace tandem::verify {

namespace {

std::string block(std::int64_t layer) { return "layers." + std::to_string(layer); }

bool kept(std::int64_t key, std::int64_t every) {
  const auto draw = philox_draw(7, RandomUse::kOrder, 2, static_cast<std::uint64_t>(key)).x[0];
  return key >= 0 && draw % static_cast<std::uint64_t>(every) == 0;
}

Work sum(RankContext& rank, std::vector<double>& values) {
  return rank.control->all_reduce(Tensor::of<double>(values, {std::ssize(values)}),
                                  {.label = "verify probe"});
}

/// The keys of all ranks, sorted.
std::vector<std::int64_t> all_keys(RankContext& rank, const std::vector<std::int64_t>& own) {
  std::int64_t most = std::ssize(own);
  rank.control
      ->all_reduce(Tensor(&most, DType::kI64, {1}), {.op = ReduceOp::kMax, .label = "verify probe"})
      .wait_host();
  std::vector<std::int64_t> padded = own;
  padded.resize(static_cast<std::size_t>(most), -1);
  std::vector<std::int64_t> all(static_cast<std::size_t>(most * rank.control->size()));
  rank.control
      ->all_gather(Tensor::of<std::int64_t>(padded, {most}),
                   Tensor::of<std::int64_t>(all, {std::ssize(all)}), {.label = "verify probe"})
      .wait_host();
  std::erase(all, -1);
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

Probe::Probe(Device& inner, const Config& config, const Layout& layout, const ParameterStore& store,
             std::int64_t every)
    : ForwardingDevice(inner),
      layout_(layout),
      store_(&store),
      layers_(config.model.layers),
      fc1_parts_(config.model.activation == Activation::kSwiglu ? 2 : 1),
      ffn_(config.model.ffn),
      vocab_(config.model.vocab_size),
      every_(every),
      language_model_(config.model.kind == ModelKind::kMlpLm),
      sequence_parallel_(config.parallel.sequence_parallel) {}

void Probe::expect(std::span<const MicroBatch> batches) {
  watching_ = !watched_;
  watched_ = true;
  for (const MicroBatch& batch : batches) {
    if (watching_) {
      const auto keys = batch.row_keys.span<std::int64_t>();
      keys_.emplace_back(keys.begin(), keys.end());
    }
  }
}

Probe::Place Probe::next(const std::string& kernel, std::int64_t per_batch) {
  const std::int64_t call = calls_[kernel]++;
  return {static_cast<std::size_t>(call / per_batch), call % per_batch};
}

Probe::Columns Probe::replicated(const Tensor& tensor) const {
  const std::int64_t width = tensor.rank() == 1 ? 1 : tensor.dim(1);
  return {.width = width, .valid = width};
}
Probe::Columns Probe::partial(const Tensor& tensor) const {
  return {.width = tensor.dim(1), .valid = tensor.dim(1), .partial = true};
}
Probe::Columns Probe::units(std::int64_t parts) const {
  const std::int64_t local = ffn_ / layout_.tp;
  return {.width = parts * ffn_,
          .parts = parts,
          .start = local * layout_.tp_rank(),
          .valid = local,
          .cut = true};
}
Probe::Columns Probe::vocabulary() const {
  const std::int64_t local = (vocab_ + layout_.tp - 1) / layout_.tp;
  const std::int64_t start = local * layout_.tp_rank();
  return {.width = vocab_,
          .start = start,
          .valid = std::clamp<std::int64_t>(vocab_ - start, 0, local),
          .cut = true};
}

void Probe::record(Stream& stream, const std::string& name, std::size_t batch, const Tensor& tensor,
                   Rows rows, const Columns& columns) {
  if (!watching_ || batch >= keys_.size()) {
    return;
  }
  const auto [entry, first] = recorded_.try_emplace(name);
  Recorded& recorded = entry->second;
  if (first) {
    order_.push_back(name);
    recorded.columns = columns;
    recorded.rows = rows;
  }
  if (tensor.numel() == 0) {
    return;
  }
  const std::vector<double> values = read_values(inner(), stream, tensor);
  const std::vector<std::int64_t>& keys = keys_[batch];
  const std::int64_t offset = rows == Rows::kShard && sequence_parallel_
                                  ? std::ssize(keys) / layout_.tp * layout_.tp_rank()
                                  : 0;
  const std::int64_t local_width = tensor.rank() == 1 ? 1 : tensor.dim(1);
  for (std::int64_t r = 0; r < tensor.dim(0); ++r) {
    const std::int64_t key = keys.at(static_cast<std::size_t>(offset + r));
    if (!kept(key, every_)) {
      continue;
    }
    std::vector<double>& row = recorded.values[key];
    row.resize(static_cast<std::size_t>(columns.width), 0.0);
    for (std::int64_t p = 0; p < columns.parts; ++p) {
      const std::int64_t from = r * local_width + p * (local_width / columns.parts);
      const std::int64_t to = p * (columns.width / columns.parts) + columns.start;
      for (std::int64_t i = 0; i < columns.valid; ++i) {
        row[static_cast<std::size_t>(to + i)] += values[static_cast<std::size_t>(from + i)];
      }
    }
  }
}

void Probe::record_gradient(Stream& stream, const Tensor& main_grad) {
  if (!watching_ || main_grad.absent()) {
    return;
  }
  for (const Parameter& parameter : store_->parameters()) {
    if (parameter.main_grad.data == main_grad.data) {
      gradients_[parameter.name()] = read_values(inner(), stream, main_grad);
    }
  }
}

void Probe::gather(RankContext& rank, Outcome& outcome) const {
  std::vector<std::int64_t> own;
  for (const auto& keys : keys_) {
    std::copy_if(keys.begin(), keys.end(), std::back_inserter(own),
                 [](auto key) { return key >= 0; });
  }
  if (rank.layout.tp_rank() != 0) {
    own.clear();
  }
  const std::vector<std::int64_t> keys = all_keys(rank, own);
  outcome.row_keys.assign(keys.begin(), keys.end());
  std::set<std::int64_t> places;
  std::copy_if(keys.begin(), keys.end(), std::inserter(places, places.end()),
               [&](std::int64_t key) { return kept(key, every_); });

  std::vector<std::int64_t> unequal(order_.size(), 0);
  for (std::size_t n = 0; n < order_.size(); ++n) {
    const Recorded& recorded = recorded_.at(order_[n]);
    const auto width = static_cast<std::size_t>(recorded.columns.width);
    const bool by_token = recorded.rows == Rows::kShard && sequence_parallel_;
    const bool whole_here = !recorded.columns.cut && !recorded.columns.partial && !by_token;
    std::vector<double> whole(places.size() * width, 0.0);
    const auto visit = [&](auto&& each) {
      std::size_t at = 0;
      for (const std::int64_t key : places) {
        if (const auto row = recorded.values.find(key); row != recorded.values.end()) {
          each(whole.begin() + static_cast<std::ptrdiff_t>(at), row->second);
        }
        at += width;
      }
    };
    if (!whole_here || rank.layout.tp_rank() == 0) {
      visit([](auto to, const std::vector<double>& row) { std::copy(row.begin(), row.end(), to); });
    }
    sum(rank, whole).wait_host();
    if (whole_here) {
      visit([&](auto at, const std::vector<double>& row) {
        unequal[n] = unequal[n] != 0 || !std::equal(row.begin(), row.end(), at) ? 1 : 0;
      });
    }
    outcome.activations[order_[n]] =
        rank.layout.rank == 0 ? std::move(whole) : std::vector<double>();
  }
  rank.control
      ->all_reduce(Tensor::of<std::int64_t>(unequal, {std::ssize(unequal)}),
                   {.op = ReduceOp::kMax, .label = "verify probe"})
      .wait_host();
  outcome.activation_order = order_;
  for (std::size_t n = 0; n < order_.size(); ++n) {
    if (unequal[n] != 0) {
      outcome.unequal_activations.insert(order_[n]);
    }
  }

  for (const Parameter& parameter : store_->parameters()) {
    std::vector<double> whole(static_cast<std::size_t>(parameter.spec().shape.numel()), 0.0);
    const auto local = gradients_.find(parameter.name());
    const bool summand = parameter.is_cut() || parameter.spec().partial_gradient;
    if (local != gradients_.end() && (summand || rank.layout.tp_rank() == 0)) {
      parameter.for_each_run([&](std::int64_t from, std::int64_t to, std::int64_t length) {
        std::copy_n(local->second.begin() + from, length, whole.begin() + to);
      });
    }
    sum(rank, whole).wait_host();
    outcome.local_gradients[parameter.name()] =
        rank.layout.rank == 0 ? std::move(whole) : std::vector<double>();
  }
}

void Probe::gemm(Stream& stream, const Gemm& args) {
  inner().gemm(stream, args);
  saw(stream, args);
}

bool Probe::gemm_activation(Stream& stream, const GemmActivation& args) {
  const bool fused = inner().gemm_activation(stream, args);
  saw(stream, args.gemm);
  if (fused) {
    saw_activation(stream, args.out);
  }
  return fused;
}

bool Probe::gemm_activation_backward(Stream& stream, const GemmActivationBackward& args) {
  if (watching_ && args.gemm.c.data != args.pre.data) {
    gemm(stream, args.gemm);  // which a device that fuses does not write
  }
  const bool fused = inner().gemm_activation_backward(stream, args);
  if (fused) {
    saw_activation_gradient(stream, args.d_pre);
  }
  return fused;
}

void Probe::gemm_bias_gradient(Stream& stream, const GemmBiasGradient& args) {
  inner().gemm_bias_gradient(stream, args);
  saw(stream, args.gemm);
  record_gradient(stream, args.d_bias);
}

void Probe::saw(Stream& stream, const Gemm& args) {
  if (!watching_) {
    return;
  }
  const std::int64_t heads = language_model_ ? 1 : 0;
  if (args.transpose_a) {
    record_gradient(stream, args.c);
  } else if (args.transpose_b) {  // forward: fc1, fc2 of each layer, head
    const auto [batch, i] = next("forward", 2 * layers_ + heads);
    if (i == 2 * layers_) {
      record(stream, "head input", batch, args.a, Rows::kAll, replicated(args.a));
    } else if (i % 2 == 0) {
      record(stream, block(i / 2) + " fc1 input", batch, args.a, Rows::kAll, replicated(args.a));
      record(stream, block(i / 2) + " fc1 output", batch, args.c, Rows::kAll, units(fc1_parts_));
    } else {
      record(stream, block(i / 2) + " fc2 partial sums", batch, args.c, Rows::kAll,
             partial(args.c));
    }
  } else {  // input gradients: head, then fc2, fc1 of each layer in reverse
    const auto [batch, call] = next("backward", 2 * layers_ + heads);
    const std::int64_t i = call - heads;
    const std::int64_t layer = layers_ - 1 - i / 2;
    if (i < 0) {
      record(stream, "head d_input partial sums", batch, args.c, Rows::kAll, partial(args.c));
    } else if (i % 2 == 0) {
      record(stream, block(layer) + " fc2 d_output", batch, args.a, Rows::kAll, replicated(args.a));
      record(stream, block(layer) + " d_activated", batch, args.c, Rows::kAll, units(1));
    } else {
      record(stream, block(layer) + " fc1 d_input partial sums", batch, args.c, Rows::kAll,
             partial(args.c));
    }
  }
}

void Probe::activation_forward(Stream& stream, const ActivationForward& args) {
  inner().activation_forward(stream, args);
  saw_activation(stream, args.out);
}

void Probe::saw_activation(Stream& stream, const Tensor& out) {
  const auto [batch, i] = next("activation", layers_);
  record(stream, block(i) + " activated", batch, out, Rows::kAll, units(1));
}

void Probe::activation_backward(Stream& stream, const ActivationBackward& args) {
  inner().activation_backward(stream, args);
  saw_activation_gradient(stream, args.d_pre);
}

void Probe::saw_activation_gradient(Stream& stream, const Tensor& d_pre) {
  const auto [batch, i] = next("activation backward", layers_);
  record(stream, block(layers_ - 1 - i) + " fc1 d_output", batch, d_pre, Rows::kAll,
         units(fc1_parts_));
}

void Probe::norm_forward(Stream& stream, const NormForward& args) {
  const auto [batch, i] = next("norm", layers_ + (language_model_ ? 1 : 0));
  if (i == 0) {
    record(stream, language_model_ ? "embed output" : "input", batch, args.x, Rows::kShard,
           replicated(args.x));
  }
  inner().norm_forward(stream, args);
  record(stream, (i < layers_ ? block(i) : "head") + " normed", batch, args.y, Rows::kShard,
         replicated(args.y));
}

void Probe::norm_backward(Stream& stream, const NormBackward& args) {
  const std::int64_t norms = layers_ + (language_model_ ? 1 : 0);
  const auto [batch, i] = next("norm backward", norms);
  const std::int64_t layer = norms - 1 - i;
  const std::string name = layer < layers_ ? block(layer) : "head";
  record(stream, name + " d_normed", batch, args.d_y, Rows::kShard, replicated(args.d_y));
  inner().norm_backward(stream, args);
  record(stream, name + " d_residual", batch, args.d_x, Rows::kShard, replicated(args.d_x));
  record_gradient(stream, args.d_weight);
  record_gradient(stream, args.d_bias);
}

void Probe::embedding_forward(Stream& stream, const EmbeddingForward& args) {
  const auto batch = next("embedding", 1).batch;
  record(stream, "ids", batch, args.ids, Rows::kAll, replicated(args.ids));
  inner().embedding_forward(stream, args);
  record(stream, "embed partial sums", batch, args.y, Rows::kAll, partial(args.y));
}

void Probe::embedding_backward(Stream& stream, const EmbeddingBackward& args) {
  const auto batch = next("embedding backward", 1).batch;
  record(stream, "embed d_output", batch, args.d_y, Rows::kAll, replicated(args.d_y));
  inner().embedding_backward(stream, args);
  record_gradient(stream, args.d_table);
}

void Probe::cross_entropy_max(Stream& stream, const CrossEntropyMax& args) {
  inner().cross_entropy_max(stream, args);
  const auto batch = next("loss maxima", 1).batch;
  record(stream, "logits", batch, args.logits, Rows::kAll, vocabulary());
}

void Probe::cross_entropy_sums(Stream& stream, const CrossEntropySums& args) {
  const auto batch = next("loss sums", 1).batch;
  record(stream, "targets", batch, args.targets, Rows::kAll, replicated(args.targets));
  record(stream, "loss row maxima", batch, args.row_max, Rows::kAll, replicated(args.row_max));
  inner().cross_entropy_sums(stream, args);
  record(stream, "loss partial row sums", batch, args.sums, Rows::kAll, partial(args.sums));
}

void Probe::cross_entropy_backward(Stream& stream, const CrossEntropyBackward& args) {
  const auto batch = next("loss", 1).batch;
  record(stream, "loss row sums", batch, args.sums, Rows::kAll, replicated(args.sums));
  inner().cross_entropy_backward(stream, args);
  if (!args.d_logits.absent()) {
    record(stream, "d_logits", batch, args.d_logits, Rows::kAll, vocabulary());
  }
}

void Probe::bias_dropout_add(Stream& stream, const BiasDropoutAdd& args) {
  const auto [batch, i] = next("bias", layers_);
  record(stream, block(i) + " fc2 output", batch, args.branch, Rows::kShard,
         replicated(args.branch));
  inner().bias_dropout_add(stream, args);
  record(stream, block(i) + " output", batch, args.out, Rows::kShard, replicated(args.out));
}

void Probe::dropout_backward(Stream& stream, const DropoutBackward& args) {
  inner().dropout_backward(stream, args);
  const auto [batch, i] = next("dropout backward", layers_);
  record(stream, block(layers_ - 1 - i) + " d_branch", batch, args.d_in, Rows::kShard,
         replicated(args.d_in));
}

void Probe::column_sum(Stream& stream, const ColumnSum& args) {
  inner().column_sum(stream, args);
  record_gradient(stream, args.out);
}

void Probe::mean_squared_error(Stream& stream, const MeanSquaredError& args) {
  const auto batch = next("loss", 1).batch;
  record(stream, "expected", batch, args.target, Rows::kShard, replicated(args.target));
  inner().mean_squared_error(stream, args);
  if (!args.d_y.absent()) {
    record(stream, "d_y", batch, args.d_y, Rows::kShard, replicated(args.d_y));
  }
}

}  // namespace tandem::verify
