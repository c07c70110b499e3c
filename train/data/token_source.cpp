#include "train/data/token_source.h"

#include "train/data/step_rule.h"

namespace tandem {
namespace {

RowBatch::Options row_options(const Config& config, bool keep_masked_rows) {
  return {.context = config.model.context,
          .seq_len = config.data.seq_len,
          .row_multiple = row_multiple(config),
          .capacity = max_rows(config),
          .keep_masked_rows = keep_masked_rows};
}

}  // namespace

TokenSource::TokenSource(std::unique_ptr<Corpus> corpus, const Config& config, const Layout& layout,
                         bool keep_masked_rows)
    : corpus_(std::move(corpus)),
      train_(config.train),
      layout_(layout),
      order_(config.seed, corpus_->samples(Split::kTrain), config.data.shuffle),
      sample_(config.data.seq_len),
      buffer_bytes_(data_buffer_bytes(config, DType::kF32)),  // whatever the type
      evaluation_buffer_(row_options(config, keep_masked_rows)) {
  const auto accumulation = static_cast<std::size_t>(config.accumulation());
  buffers_.reserve(accumulation);
  for (std::size_t m = 0; m < accumulation; ++m) {
    buffers_.emplace_back(row_options(config, keep_masked_rows));
  }
  step_.resize(accumulation);
}

std::span<const MicroBatch> TokenSource::fetch_step(std::int64_t consumed_samples) {
  evaluation_buffer_.reserve();  // here too: later steps allocate nothing
  for (std::size_t m = 0; m < buffers_.size(); ++m) {
    const SampleRange positions =
        micro_batch_positions(train_, layout_, consumed_samples, static_cast<std::int64_t>(m));
    buffers_[m].reserve();
    buffers_[m].clear();
    for (std::int64_t i = 0; i < positions.count; ++i) {
      const std::int64_t number = order_.at(positions.first + i);
      corpus_->read(Split::kTrain, number, sample_);
      buffers_[m].add(sample_, number);
    }
    step_[m] = buffers_[m].finish();
  }
  return step_;
}

std::int64_t TokenSource::evaluation_batches() const {
  return evaluation_batches_per_rank(train_, layout_, corpus_->samples(Split::kHeldOut));
}

const MicroBatch& TokenSource::fetch_evaluation(std::int64_t index) {
  const SampleRange samples =
      evaluation_samples(train_, layout_, corpus_->samples(Split::kHeldOut), index);
  evaluation_buffer_.reserve();
  evaluation_buffer_.clear();
  for (std::int64_t number = samples.first; number < samples.first + samples.count; ++number) {
    corpus_->read(Split::kHeldOut, number, sample_);
    evaluation_buffer_.add(sample_, number);
  }
  evaluation_ = evaluation_buffer_.finish();
  return evaluation_;
}

}  // namespace tandem
