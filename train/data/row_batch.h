// The buffers of one micro-batch of a language model and how samples become rows in them: only the
// positions that have a target, one after another. Sized once for the fullest micro-batch.
#pragma once

#include <cstdint>
#include <vector>

#include "train/data/corpus.h"
#include "train/data/source.h"

namespace tandem {

class RowBatch {
 public:
  struct Options {
    std::int64_t context = 1;
    std::int64_t seq_len = 1;
    std::int64_t row_multiple = 64;
    std::int64_t capacity = 0;  ///< rows; a multiple of row_multiple
    /// Keeps seq_len rows of every sample, those without a target included. They contribute
    /// nothing: the result must not change, only the work.
    bool keep_masked_rows = false;
  };
  explicit RowBatch(const Options& options) : options_(options) {}

  /// Allocates the buffers, once; before it nothing is held, as opening data must be cheap.
  void reserve();
  /// Empties the batch, which is reserved.
  void clear();
  /// Appends the rows of a sample; `number` is its number in its part of the corpus. Slot j of
  /// position t is token t - j where that is not before history_start[t], else -1.
  void add(const Sample& sample, std::int64_t number);
  /// Pads to the row multiple and views what is there; valid until the next clear().
  MicroBatch finish();

 private:
  void append_row(const Sample& sample, std::int64_t position, std::int64_t key);
  void append_empty_row(std::int64_t key);

  Options options_;
  std::vector<std::int32_t> ids_, targets_;
  std::vector<std::int64_t> row_keys_;
  std::int64_t rows_ = 0, tokens_ = 0;
};

}  // namespace tandem
