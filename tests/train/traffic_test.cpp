// What step_traffic() derives is what the ledger of every rank counted, call by call and byte by
// byte.
#include "train/traffic.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "tests/train/training.h"

namespace tandem::test {
namespace {

/// "tp 2: all_reduce fp32 `layers.0 g.forward`" -> calls and bytes.
using Table = std::map<std::string, std::pair<std::uint64_t, std::uint64_t>>;

void add(Table& table, const Traffic& traffic) {
  const TrafficKey& key = traffic.key;
  std::string name(key.group.view());
  name += " " + std::to_string(key.ranks) + ": ";
  name.append(name_of(key.op)).append(" ").append(name_of(key.dtype));
  name.append(" `").append(key.label.view()).append("`");
  auto& [calls, bytes] = table[name];
  calls += traffic.calls;
  bytes += traffic.bytes;
}

Table counted_in_steps(const Ledger& ledger) {
  Table table;
  for (const Ledger::Line& line : ledger.lines()) {
    if (line.traffic.key.phase == JobPhase::kStep) {
      add(table, line.traffic);
    }
  }
  return table;
}

/// Trains `steps` steps and holds every rank's ledger against the formula after each.
void expect_predicted(const Config& config, int steps = 1) {
  SCOPED_TRACE("tp " + std::to_string(config.parallel.tp) + " dp " +
               std::to_string(config.parallel.dp) + " accumulation " +
               std::to_string(config.accumulation()) +
               (config.parallel.sequence_parallel ? " sequence parallel" : "") +
               (config.parallel.zero > 0 ? " ZeRO" : ""));
  std::map<int, Table> predicted;  // by rank, over all steps so far
  int inspected = 0;
  train(config,
        {.steps = steps,
         .inspect =
             [&](const RankContext& rank, const TrainState& state, const StepResult& result) {
               ++inspected;
               for (const Traffic& traffic :
                    step_traffic(config, rank.layout, rank.precision, state.store,
                                 {config.accumulation(), result.rows})) {
                 add(predicted[rank.layout.rank], traffic);
               }
               EXPECT_EQ(counted_in_steps(*rank.ledger), predicted[rank.layout.rank])
                   << "rank " << rank.layout.rank;
             },
         .observe = false});
  EXPECT_EQ(inspected, steps * config.world());
}

void expect_predicted_in_every_layout(const Config& base) {
  for (const int tp : {1, 2, 4}) {
    for (const int dp : {1, 2, 4}) {
      for (const std::int64_t accumulation : {1, 2}) {
        for (const bool sequence_parallel : {false, true}) {
          for (const int zero : {0, 1}) {
            if (tp * dp <= 8 && (tp > 1 || !sequence_parallel) && (dp > 1 || zero == 0)) {
              Config config = with_layout(base, tp, dp, accumulation);
              config.parallel.sequence_parallel = sequence_parallel;
              config.parallel.zero = zero;
              expect_predicted(config);
            }
          }
        }
      }
    }
  }
}

TEST(Traffic, OfALanguageModelIsPredictedInEveryLayout) {
  expect_predicted_in_every_layout(small_config());
}

TEST(Traffic, OfABareStackIsPredictedInEveryLayout) {
  Config base = small_config();
  base.model.kind = ModelKind::kFfn;
  base.model.vocab_size = base.model.context = 0;
  expect_predicted_in_every_layout(base);
}

TEST(Traffic, OfSwigluRmsNormInHalfPrecisionWithoutBiasIsPredicted) {
  Config base = small_config();
  base.model.activation = Activation::kSwiglu;
  base.model.norm = NormKind::kRmsNorm;
  base.model.bias = false;
  base.model.dropout = 0.1;
  base.model.vocab_size = 49;  // no tp divides it
  for (const PrecisionChoice precision : {PrecisionChoice::kBf16, PrecisionChoice::kFp16}) {
    for (const bool sequence_parallel : {false, true}) {
      Config config = with_layout(base, 2, 2, 2);
      config.precision = precision;
      config.parallel.sequence_parallel = sequence_parallel;
      expect_predicted(config);
    }
  }
}

TEST(Traffic, OfSplitBucketsAndRoundedGradientsIsPredicted) {
  Config base = small_config();
  base.model.hidden = 256;
  base.model.ffn = 1024;
  base.model.layers = 1;
  base.parallel.bucket_mb = 1;  // a block's matrices are two
  base.parallel.grad_dtype = GradientType::kBf16;
  for (const int zero : {0, 1}) {
    Config config = with_layout(base, 1, 2, 1);
    config.parallel.zero = zero;
    expect_predicted(config);
  }
}

// Padded documents give every micro-batch a row count of its own.
TEST(Traffic, FollowsTheRowsOfEachStep) {
  std::map<int, std::vector<std::int64_t>> rows;
  Config config = with_layout(grid_config(), 2, 2, 2);
  config.data.seq_len = 96;
  train(config, {.steps = 3,
                 .inspect =
                     [&](const RankContext& rank, const TrainState&, const StepResult& result) {
                       rows[rank.layout.rank].push_back(result.rows);
                     },
                 .observe = false});
  EXPECT_EQ(rows[0], rows[1]) << "one data rank";
  EXPECT_NE(rows[0], rows[2]);
  expect_predicted(config, 3);
}

TEST(Traffic, OfOneRankIsNone) {
  const Config config = with_layout(small_config(), 1, 1, 1);
  train(
      config,
      {.inspect = [&](const RankContext& rank, const TrainState& state, const StepResult& result) {
        EXPECT_TRUE(step_traffic(config, rank.layout, rank.precision, state.store, {1, result.rows})
                        .empty());
        EXPECT_TRUE(rank.ledger->lines().empty());
      }});
}

}  // namespace
}  // namespace tandem::test
