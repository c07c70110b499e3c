#include "parallel/layout.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "parallel/ledger.h"
#include "parallel/world.h"

namespace tandem {

namespace {

using testing::ElementsAre;

/// B96.
TEST(Layout, NeighboursShareATensorParallelGroup) {
  const auto at = [](int rank) { return Layout{.tp = 2, .dp = 4, .rank = rank}; };
  for (const int rank : {0, 1}) {
    EXPECT_THAT(at(rank).tp_group(), ElementsAre(0, 1));
    EXPECT_THAT(at(rank + 4).tp_group(), ElementsAre(4, 5));
  }
  EXPECT_THAT(at(2).tp_group(), ElementsAre(2, 3));
  EXPECT_THAT(at(7).tp_group(), ElementsAre(6, 7));
  for (const int rank : {0, 2, 4, 6}) {
    EXPECT_THAT(at(rank).dp_group(), ElementsAre(0, 2, 4, 6));
    EXPECT_THAT(at(rank + 1).dp_group(), ElementsAre(1, 3, 5, 7));
  }
  EXPECT_THAT(at(5).world_group(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(at(5).tp_rank(), 1);
  EXPECT_EQ(at(5).dp_rank(), 2);
}

TEST(Ledger, KeepsTheNewestEntriesAndAllTotals) {
  Ledger ledger(2);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ledger.add({Label("tp"), i, i == 0 ? Collective::kBarrier : Collective::kAllReduce, DType::kF32,
                2048, Label("layers.2.fc2 g.forward")},
               2);
  }
  EXPECT_EQ(ledger.calls(), 3u);
  EXPECT_EQ(ledger.calls(Collective::kAllReduce), 2u);
  const auto recent = ledger.recent();
  ASSERT_EQ(recent.size(), 2u);
  EXPECT_EQ(recent[0].to_string(), "tp#1 all_reduce fp32 x 2048 `layers.2.fc2 g.forward`");
  EXPECT_EQ(recent[1].sequence, 2u);
}

TEST(Ledger, TotalsOfALabelAreItsOwn) {
  Ledger ledger;
  const auto add = [&](const char* group, Collective op, const char* label) {
    return ledger.add({Label(group), 0, op, DType::kBF16, 100, Label(label)}, 4);
  };
  const auto sum = add("tp", Collective::kAllReduce, "a");
  ledger.set_phase(JobPhase::kStep);
  EXPECT_NE(add("tp", Collective::kAllReduce, "a"), sum) << "another phase";
  const auto gather = add("tp", Collective::kAllGather, "a");
  EXPECT_EQ(add("tp", Collective::kAllGather, "a"), gather);
  EXPECT_NE(add("dp", Collective::kAllGather, "a"), gather);
  ledger.add_time(gather, 2.0, 0.5);
  ledger.add_time(gather, 1.0, 0.0);
  ASSERT_EQ(ledger.lines().size(), 4u);
  EXPECT_EQ(ledger.lines()[sum].traffic.bytes, 200u);
  EXPECT_EQ(ledger.lines()[gather].traffic.calls, 2u);
  EXPECT_EQ(ledger.lines()[gather].traffic.bytes, 2u * 4u * 200u) << "the whole, not the shard";
  EXPECT_EQ(ledger.lines()[gather].seconds, 3.0);
  EXPECT_EQ(ledger.lines()[gather].exposed_seconds, 0.5);
  EXPECT_EQ(ledger.lines()[sum].seconds, 0.0);
  EXPECT_EQ(ledger.calls(), 5u);
  EXPECT_EQ(ledger.bytes(), 2u * 200u + 3u * 800u);
  EXPECT_EQ(ledger.seconds(), 3.0);
  EXPECT_EQ(ledger.exposed_seconds(), 0.5);
}

TEST(Ledger, KnowsWhatARankSends) {
  EXPECT_EQ(sent_bytes(Collective::kAllReduce, 800.0, 4), 1200.0);
  EXPECT_EQ(sent_bytes(Collective::kAllGather, 800.0, 4), 600.0);
  EXPECT_EQ(sent_bytes(Collective::kReduceScatter, 800.0, 4), 600.0);
  EXPECT_EQ(sent_bytes(Collective::kAllToAll, 800.0, 4), 600.0);
  EXPECT_EQ(sent_bytes(Collective::kBroadcast, 800.0, 4), 2400.0);
}

TEST(Ledger, CutsLongLabels) {
  EXPECT_EQ(Label(std::string(100, 'x')).view(), std::string(47, 'x'));
}

/// Sets variables for one test; the launcher's own are taken away first.
class Launcher : public testing::Test {
 protected:
  static constexpr const char* kVariables[] = {
      "OMPI_COMM_WORLD_SIZE", "PMI_RANK",     "PMI_SIZE",      "PMIX_RANK",
      "SLURM_PROCID",         "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEPID",
      "SLURM_STEP_NUM_TASKS"};
  Launcher() { clear(); }
  ~Launcher() override { clear(); }
  static void clear() {
    for (const char* variable : kVariables) {
      unsetenv(variable);
    }
  }
};

TEST_F(Launcher, IsAbsentWhereNothingSaysSo) { EXPECT_EQ(launched_ranks(), 0); }

TEST_F(Launcher, IsNotSallocsShell) {
  setenv("SLURM_PROCID", "0", 1);
  setenv("SLURM_NTASKS", "4", 1);
  EXPECT_EQ(launched_ranks(), 0);
}

TEST_F(Launcher, IsMpirunOrSrun) {
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  EXPECT_EQ(launched_ranks(), 4);
  clear();
  setenv("PMI_SIZE", "3", 1);
  EXPECT_EQ(launched_ranks(), 0);
  setenv("PMI_RANK", "1", 1);
  EXPECT_EQ(launched_ranks(), 3);
  clear();
  setenv("PMIX_RANK", "1", 1);
  setenv("SLURM_NTASKS", "8", 1);
  EXPECT_EQ(launched_ranks(), 0);
  setenv("SLURM_STEP_ID", "0", 1);
  EXPECT_EQ(launched_ranks(), 8);
  setenv("SLURM_STEP_NUM_TASKS", "2", 1);
  EXPECT_EQ(launched_ranks(), 2);
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_EQ(launched_ranks(), 1);
}

}  // namespace

}  // namespace tandem
