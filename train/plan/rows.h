// How many rows the micro-batches of a config have. Packed and generated sequences fill them;
// padded documents leave some out, so samples are counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config.h"

namespace tandem {

struct RowCounts {
  double rows = 0.0;       ///< of a micro-batch, padding included
  double tokens = 0.0;     ///< targets of a step, whole job
  double different = 1.0;  ///< numbers of rows that one data rank had, the most of any
};

class SampledRows {
 public:
  /// Reads the config's data, up to a few thousand samples of its first steps. Where it cannot be
  /// opened, micro-batches count as full and note() says so.
  explicit SampledRows(const Config& config);

  /// Rows: those of the data rank that has most, averaged over micro-batches. `config` differs from
  /// the constructor's in layout and micro-batch only.
  RowCounts counts(const Config& config) const;
  /// What the counts are, in words.
  const std::string& note() const { return note_; }

 private:
  std::vector<std::int64_t> tokens_;  ///< of samples in their order; empty: all are full
  double mean_ = 0.0;
  std::string note_;
};

}  // namespace tandem
