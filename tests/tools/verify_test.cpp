// verify passes what is right and sees what is wrong. Faults are planted one at a time at the seams
// of the run under test; see faulty.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/ranks.h"
#include "tests/tools/faulty.h"
#include "tools/verify/proof.h"

namespace tandem::test {
namespace {

using verify::Proof;
using verify::Row;

verify::Decorators decorators_of(const Fault& fault, const Config& config, int rank) {
  const Layout layout{config.parallel.tp, config.parallel.dp, rank};
  verify::Decorators decorators;
  const auto state = std::make_shared<const TrainState*>(nullptr);
  decorators.prepare = [=](RankContext& context, TrainState& built) {
    *state = &built;
    if (fault.prepare) {
      fault.prepare(context, built);
    }
  };
  if (fault.kernels) {
    decorators.device = [=](Device& real) {
      return make_faulty_device(real, fault.kernels(layout, [state] { return *state; }));
    };
  }
  if (fault.data) {
    decorators.source = [=](std::unique_ptr<DataSource> real) {
      return make_faulty_source(std::move(real), fault.data(config, layout));
    };
  }
  return decorators;
}

Proof prove_with(const Fault& fault) {
  Proof proof;
  run_ranks(fault.config.world(), [&](World& world, Device&) {
    const verify::Decorators decorators = decorators_of(fault, fault.config, world.rank());
    FaultyWorld faulty(
        world,
        fault.communication ? fault.communication
                            : [](const InterceptedCall& call) { call.forward(); },
        fault.dp_is_tp);
    Proof own = verify::prove(faulty, fault.config, {.steps = 2}, decorators);
    if (world.rank() == 0) {
      proof = std::move(own);
    }
  });
  return proof;
}

std::string failures(const Proof& proof) {
  std::string text;
  const auto add = [&](const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      if (!row.pass && !row.evidence) {
        text += row.argument + " " + row.tensor + " " + std::to_string(row.error_layout) + "\n";
      }
    }
  };
  for (const verify::ExactArgument& exact : proof.exact) {
    add(exact.rows);
  }
  add(proof.real_rows);
  return text;
}

TEST(Verify, PassesEveryRightLayout) {
  for (const auto activation : {Activation::kGelu, Activation::kSwiglu, Activation::kRelu}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const auto precision : {PrecisionChoice::kFp32, PrecisionChoice::kBf16}) {
        Fault none{.name = "none", .config = fault_config()};
        none.config.model.activation = activation;
        none.config.parallel.sequence_parallel = sequence_parallel;
        none.config.precision = precision;
        // Odd sizes and the other choices go along.
        none.config.model.norm = sequence_parallel ? NormKind::kRmsNorm : NormKind::kLayerNorm;
        none.config.model.dropout = precision == PrecisionChoice::kBf16 ? 0.1 : 0.0;
        none.config.model.hidden = activation == Activation::kSwiglu ? 9 : 17;
        none.config.model.bias = activation != Activation::kRelu;
        if (sequence_parallel == (precision == PrecisionChoice::kBf16)) {
          none.config.parallel.tp = 4;
          none.config.parallel.dp = 1;
          none.config.train.micro_batch = 4;
        }
        const Proof proof = prove_with(none);
        EXPECT_TRUE(proof.pass) << failures(proof) << proof.diagnosis;
        EXPECT_EQ(proof.diagnosis, "");
        // In bf16 the plan is proved in both storage types; products of gate and up leave 2^8.
        const bool in_bf16 =
            precision == PrecisionChoice::kBf16 && activation != Activation::kSwiglu;
        ASSERT_EQ(proof.exact.size(), in_bf16 ? 2u : 1u);
        for (const verify::ExactArgument& exact : proof.exact) {
          EXPECT_GT(exact.sum_bound, 64.0);
          EXPECT_LT(exact.sum_bound, 0x1p24);
          EXPECT_GT(exact.stored_bound, 4.0);
          EXPECT_GT(exact.rows.size(), 40u);
        }
        EXPECT_LT(proof.exact.back().stored_bound, in_bf16 ? 0x1p8 : 0x1p24);
        EXPECT_EQ(proof.exact.back().config.precision,
                  in_bf16 ? PrecisionChoice::kBf16 : PrecisionChoice::kFp32);
      }
    }
  }
}

// An element of the embedding whose contributions cancel to 1e-6 of the largest gradient: AdamW
// makes of its last bit more than eight one-rank runs show, and the second look knows it.
TEST(Verify, LooksTwiceWhereAdamWMagnifiesRounding) {
  const Fault none{.name = "none",
                   .config = parse_config(R"(
seed: 240
threads: 1
parallel: {tp: 3, dp: 1, sequence_parallel: true}
model: {hidden: 10, ffn: 33, layers: 1, activation: swiglu, norm: rmsnorm, bias: false, dropout: 0.1, vocab_size: 24, context: 3}
data: {format: synthetic, seq_len: 18}
train: {micro_batch: 1, global_batch: 2, eval_every: 0}
optim: {lr: 0.006}
)",
                                          {.file = "narrow"})};
  const Proof proof = prove_with(none);
  EXPECT_TRUE(proof.pass) << failures(proof) << proof.diagnosis;
}

TEST(Verify, PassesTheFeedForwardJob) {
  Fault none{.name = "none", .config = fault_config()};
  none.config.model.kind = ModelKind::kFfn;
  const Proof proof = prove_with(none);
  EXPECT_TRUE(proof.pass) << failures(proof) << proof.diagnosis;
}

/// What was said of each fault; a table for docs/verify.md where TANDEM_FAULT_TABLE names a file.
void expect_named(const std::vector<Fault>& faults) {
  const char* table = std::getenv("TANDEM_FAULT_TABLE");
  for (const Fault& fault : faults) {
    const Proof proof = prove_with(fault);
    EXPECT_FALSE(proof.pass) << fault.name << " was not seen";
    for (const std::string& word : fault.named) {
      EXPECT_THAT(proof.diagnosis, testing::HasSubstr(word)) << fault.name;
    }
    if (table != nullptr) {
      const bool exact = !proof.exact_passes();
      const bool real = !verify::all_pass(proof.real_rows);
      std::ofstream(table, std::ios::app)
          << "| " << fault.name << " | " << (exact ? real ? "both" : "exact" : "real") << " | "
          << proof.diagnosis << " |\n";
    }
  }
}

TEST(Verify, SeesAndNamesFaultsInCollectives) { expect_named(communication_faults()); }
TEST(Verify, SeesAndNamesFaultsInKernels) { expect_named(kernel_faults()); }
TEST(Verify, SeesAndNamesFaultsInNormClippingAndUpdate) { expect_named(update_faults()); }
TEST(Verify, SeesAndNamesFaultsInRowsAndInitialWeights) { expect_named(data_faults()); }

}  // namespace
}  // namespace tandem::test
