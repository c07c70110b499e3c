#include "train/data/row_batch.h"

#include <algorithm>

#include "core/error.h"

namespace tandem {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace

void RowBatch::reserve() {
  if (targets_.empty()) {
    ids_.resize(at(options_.capacity * options_.context));
    targets_.resize(at(options_.capacity));
    row_keys_.resize(at(options_.capacity));
  }
}

void RowBatch::clear() { rows_ = tokens_ = 0; }

void RowBatch::add(const Sample& sample, std::int64_t number) {
  const std::int64_t first_key = number * options_.seq_len;
  const auto targets = static_cast<std::int64_t>(sample.tokens.size()) - 1;
  ensure(targets <= options_.seq_len, "sample longer than seq_len + 1 tokens");
  for (std::int64_t t = 0; t < targets; ++t) {
    append_row(sample, t, first_key + t);
  }
  if (options_.keep_masked_rows) {
    for (std::int64_t t = targets; t < options_.seq_len; ++t) {
      append_empty_row(first_key + t);
    }
  }
}

void RowBatch::append_row(const Sample& sample, std::int64_t position, std::int64_t key) {
  ensure(rows_ < options_.capacity, "more rows than a micro-batch holds");
  std::int32_t* const slots = ids_.data() + rows_ * options_.context;
  const std::int64_t seen = position - sample.history_start[at(position)] + 1;
  for (std::int64_t j = 0; j < options_.context; ++j) {
    slots[j] = j < seen ? sample.tokens[at(position - j)] : -1;
  }
  targets_[at(rows_)] = sample.tokens[at(position + 1)];
  row_keys_[at(rows_)] = key;
  ++rows_;
  ++tokens_;
}

void RowBatch::append_empty_row(std::int64_t key) {
  ensure(rows_ < options_.capacity, "more rows than a micro-batch holds");
  std::fill_n(ids_.data() + rows_ * options_.context, options_.context, -1);
  targets_[at(rows_)] = -1;
  row_keys_[at(rows_)] = key;
  ++rows_;
}

MicroBatch RowBatch::finish() {
  while (rows_ % options_.row_multiple != 0) {
    append_empty_row(-1);
  }
  MicroBatch batch;
  batch.rows = rows_;
  batch.tokens = tokens_;
  batch.ids = Tensor(ids_.data(), DType::kI32, {rows_, options_.context});
  batch.targets = Tensor(targets_.data(), DType::kI32, {rows_});
  batch.row_keys = Tensor(row_keys_.data(), DType::kI64, {rows_});
  return batch;
}

}  // namespace tandem
