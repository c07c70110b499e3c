// The layout grid with ranks that are processes: each compares what it holds with a run of one rank
// that it makes itself.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/train/training.h"

namespace tandem::test {
namespace {

World* world = nullptr;

// B43, B46, B55, B96; B139, B140: as root, and with more ranks than cores
TEST(MpiLayout, EveryLayoutOfTheseRanksTrainsAsOneRankDoes) {
  const Training one = train(with_layout(grid_config(), 1, 1, 1), {.steps = 20});
  for (const int tp : {1, 2, 4}) {
    const int dp = world->size() / tp;
    if (tp * dp != world->size() || dp > 4) {
      continue;
    }
    for (const std::int64_t accumulation : {1, 2, 4}) {
      SCOPED_TRACE("tp " + std::to_string(tp) + " dp " + std::to_string(dp) + " accumulation " +
                   std::to_string(accumulation));
      const Config config = with_layout(grid_config(), tp, dp, accumulation);
      expect_equal_training(train_in(*world, config, {.steps = 20}), one);
    }
  }
}

TEST(MpiLayout, TokenShardsAndDropoutToo) {  // B49, B61
  Config base = small_config();
  base.model.dropout = 0.2;
  base.model.activation = Activation::kSwiglu;
  const Training one = train(with_layout(base, 1, 1, 1), {.steps = 5});
  Config config = with_layout(base, 2, world->size() / 2, 1);
  config.parallel.sequence_parallel = true;
  expect_equal_training(train_in(*world, config, {.steps = 5}), one);
}

}  // namespace
}  // namespace tandem::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto mpi = tandem::make_mpi_world({.timeout_s = 60});
  if (tandem::launched_ranks() < 2 || tandem::launched_ranks() != mpi->size()) {
    std::cerr << "the launcher did not start the ranks of this test: use scripts/mpirun.sh N\n";
    return 1;
  }
  tandem::test::world = mpi.get();
  const int result = RUN_ALL_TESTS();
  if (result != 0) {
    mpi->abandon("a test failed");
  }
  return result;
}
