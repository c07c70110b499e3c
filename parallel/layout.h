// Who sits where in a tensor-parallel x data-parallel layout. Tensor parallelism is the fastest
// axis, so that the ranks that talk most are neighbours: rank = dp_rank * tp + tp_rank.
#pragma once

#include <vector>

#include "core/error.h"

namespace tandem {

struct Layout {
  int tp = 1;
  int dp = 1;
  int rank = 0;

  int world() const { return tp * dp; }
  int tp_rank() const { return rank % tp; }
  int dp_rank() const { return rank / tp; }
  /// Ranks that hold the other cuts of this rank's weights: tp=2, dp=2: {0,1} and {2,3}.
  std::vector<int> tp_group() const;
  /// Ranks that hold the same cut and see other data: tp=2, dp=2: {0,2} and {1,3}.
  std::vector<int> dp_group() const;
  std::vector<int> world_group() const;
};

}  // namespace tandem
