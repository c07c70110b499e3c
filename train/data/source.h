// Where a step's rows come from. The trainer sees only this: all micro-batches of a step, packed
// rows of known counts. Data ranks hold different numbers of tokens; tensor-parallel ranks of one
// data rank see the same rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/tensor.h"

namespace tandem {

struct Config;
struct Layout;
class TokenStore;

/// One forward/backward. Host tensors owned by the source, valid until its next call. Rows are
/// packed: only positions with a target are kept, then padded with target-less rows to a multiple
/// of the row multiple, so that matmul shapes stay few and sequence parallelism divides.
struct MicroBatch {
  std::int64_t rows = 0;    ///< padded; may be 0
  std::int64_t tokens = 0;  ///< rows that have a target
  Tensor ids;       ///< mlp_lm: [rows, context] int32; slot j is the token j places back, -1 = none
  Tensor targets;   ///< mlp_lm: [rows] int32, -1 in padding
  Tensor row_keys;  ///< [rows] int64: sample number * seq_len + position, -1 in padding
  Tensor input;     ///< ffn: [rows, hidden] storage type, zeros in padding
  Tensor expected;  ///< ffn: [rows, hidden] storage type, zeros in padding
};

class DataSource {
 public:
  virtual ~DataSource() = default;

  /// The micro-batches of the step whose first sample is number `consumed_samples` of the run.
  /// Throws DataError for ids outside the vocabulary, with the file and place.
  virtual std::span<const MicroBatch> fetch_step(std::int64_t consumed_samples) = 0;

  /// Batches that every data rank goes through to see the whole held-out part once; the same number
  /// on every rank, those of ranks that ran out being empty. 0 if nothing is held out.
  virtual std::int64_t evaluation_batches() const = 0;
  virtual const MicroBatch& fetch_evaluation(std::int64_t index) = 0;

  /// Host memory that the buffers of a step and an evaluation take once they are used; held against
  /// the memory there is together with the arena.
  virtual std::size_t buffer_bytes() const { return 0; }

  /// For the start-up table: "text data/kjv.txt: 31102 documents, 4.2 M tokens, 29547 samples".
  virtual std::string describe() const = 0;
};

/// The tokens that `config.data` names, of model.vocab_size. Throws DataError.
std::unique_ptr<TokenStore> open_tokens(const Config& config);

/// What make_data_source needs to know beyond the config.
struct SourceOptions {
  DType storage = DType::kF32;  ///< ffn: element type of input and expected
  int threads = 1;              ///< ffn: generate with that many
  /// mlp_lm: a row for every position, with or without a target. Only to show that it makes no
  /// difference.
  bool keep_masked_rows = false;
};

/// The samples that `config` names, cut for the rank of `layout` by its data rank alone. Everything
/// is opened and checked here: throws DataError with the file, what was found and what to do.
std::unique_ptr<DataSource> make_data_source(const Config& config, const Layout& layout,
                                             const SourceOptions& options = {});

/// DataSource::buffer_bytes() of the source that a config names, without opening it.
std::size_t data_buffer_bytes(const Config& config, DType storage);

/// Rows of a micro-batch are padded to a multiple of this: lcm(64, tp).
std::int64_t row_multiple(const Config& config);
/// Rows of the fullest micro-batch, padding included: what buffers and the arena are sized for.
std::int64_t max_rows(const Config& config);

}  // namespace tandem
