#include "parallel/layout.h"

#include <numeric>

namespace tandem {

std::vector<int> Layout::tp_group() const {
  std::vector<int> ranks(static_cast<std::size_t>(tp));
  std::iota(ranks.begin(), ranks.end(), dp_rank() * tp);
  return ranks;
}

std::vector<int> Layout::dp_group() const {
  std::vector<int> ranks;
  for (int d = 0; d < dp; ++d) {
    ranks.push_back(d * tp + tp_rank());
  }
  return ranks;
}

std::vector<int> Layout::world_group() const {
  std::vector<int> ranks(static_cast<std::size_t>(world()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace tandem
