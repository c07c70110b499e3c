// Rows of a language model: the step's samples in their order, read from the corpus and packed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/layout.h"
#include "train/config.h"
#include "train/data/corpus.h"
#include "train/data/row_batch.h"
#include "train/data/sample_order.h"
#include "train/data/source.h"

namespace tandem {

class TokenSource final : public DataSource {
 public:
  TokenSource(std::unique_ptr<Corpus> corpus, const Config& config, const Layout& layout,
              bool keep_masked_rows);

  std::span<const MicroBatch> fetch_step(std::int64_t consumed_samples) override;
  std::int64_t evaluation_batches() const override;
  const MicroBatch& fetch_evaluation(std::int64_t index) override;
  std::size_t buffer_bytes() const override { return buffer_bytes_; }
  std::string describe() const override { return corpus_->describe(); }

 private:
  std::unique_ptr<Corpus> corpus_;
  TrainConfig train_;
  Layout layout_;
  SampleOrder order_;
  Sample sample_;
  std::size_t buffer_bytes_;
  std::vector<RowBatch> buffers_;
  std::vector<MicroBatch> step_;
  RowBatch evaluation_buffer_;
  MicroBatch evaluation_;
};

}  // namespace tandem
