// Rows of the bare stack (model.kind: ffn): input and expected output are normal deviates from the
// counter generator, new ones for every sample of the run, so that every layout sees the same
// numbers without reading anything.
#pragma once

#include <string>
#include <vector>

#include "parallel/layout.h"
#include "train/config.h"
#include "train/data/source.h"

namespace tandem {

/// A value is one of a pool of 65536 deviates, picked by 16 bits of a Philox draw over its global
/// place (sample, position, column). Computing each deviate would take a tenth of a bf16 step.
class NoiseSource final : public DataSource {
 public:
  static constexpr std::int64_t kPoolSize = 1 << 16;

  /// `storage` is the element type of input and expected; `threads` generate them.
  NoiseSource(const Config& config, const Layout& layout, DType storage, int threads);

  std::span<const MicroBatch> fetch_step(std::int64_t consumed_samples) override;
  /// Nothing is held out: every sample is new.
  std::int64_t evaluation_batches() const override { return 0; }
  const MicroBatch& fetch_evaluation(std::int64_t index) override;
  std::size_t buffer_bytes() const override { return buffer_bytes_; }
  std::string describe() const override;

 private:
  struct Buffers {
    std::vector<std::byte> input, expected;
    std::vector<std::int64_t> row_keys;
  };

  /// At the first step: opening data must be cheap, as memory is checked after it.
  void allocate();

  std::uint64_t seed_;
  TrainConfig train_;
  Layout layout_;
  std::int64_t seq_len_, hidden_, rows_;
  DType storage_;
  int threads_;
  std::size_t buffer_bytes_;
  std::vector<std::byte> pool_;  ///< deviates in the storage type, rounded once
  std::vector<Buffers> buffers_;
  std::vector<MicroBatch> step_;
};

}  // namespace tandem
