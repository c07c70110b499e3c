// The order of a run's samples: a new permutation of all of them in each epoch, computed where it
// is needed. No index lives in memory and nothing but the position has to be saved to resume.
#pragma once

#include <cstdint>

namespace tandem {

/// Sample numbers by position in the run. A permutation is a keyed bijection of (seed, epoch): a
/// Feistel network (Luby & Rackoff 1988) whose round function is Philox, walked along its cycle
/// until it lands in [0, samples) (Black & Rogaway, "Ciphers with arbitrary finite domains", 2002).
class SampleOrder {
 public:
  /// `samples` in [1, 2^62]. Without `shuffle` every epoch is in the order of the corpus.
  SampleOrder(std::uint64_t seed, std::int64_t samples, bool shuffle);

  /// The sample at `position` of the run; epochs follow each other without a gap.
  std::int64_t at(std::int64_t position) const {
    return in_epoch(position / samples_, position % samples_);
  }
  /// The sample at `index` of `epoch`; a bijection of [0, samples) for each epoch.
  std::int64_t in_epoch(std::int64_t epoch, std::int64_t index) const;

 private:
  std::uint64_t scramble(std::uint64_t epoch, std::uint64_t value) const;

  std::uint64_t seed_;
  std::int64_t samples_;
  bool shuffle_;
  int half_bits_;  ///< the network permutes [0, 4^half_bits), less than 4 * samples
};

}  // namespace tandem
