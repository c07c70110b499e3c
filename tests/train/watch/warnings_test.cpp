// Whole runs with something planted in them: what they warn of, once, on stderr and in
// metrics.jsonl. Planted delays are far longer than a step.
#include "train/watch/warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <limits>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "tests/support/ranks.h"
#include "tests/tools/faulty.h"
#include "tests/train/small_run.h"
#include "tests/train/training.h"
#include "train/train_job.h"

namespace tandem::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Four ranks as threads, two by two.
struct Plant {
  std::vector<std::string> settings;
  std::function<void(Config&)> change = [](Config&) {};
  SourceFactory source = [](const Config& config, const Layout& layout) {
    return make_data_source(config, layout);
  };
  /// Of a rank.
  std::function<FaultyKernels(int rank)> kernels = [](int) { return FaultyKernels{}; };
  std::function<void(int rank, const InterceptedCall&)> collective =
      [](int, const InterceptedCall& call) { call.forward(); };
};

struct Warned {
  std::int64_t step = 0;
  std::string text;
};

/// What the run warned of, by kind. Each is on stderr once, too.
std::multimap<std::string, Warned> warnings_of(const Plant& plant) {
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  std::vector<std::string> overrides = {"log.dir=" + (folder.path() / "runs").string(),
                                        "train.steps=45", "log.every=1000"};
  overrides.insert(overrides.end(), plant.settings.begin(), plant.settings.end());
  Config config =
      load_config({.file = (folder.path() / "small.yaml").string(), .overrides = overrides});
  plant.change(config);
  testing::internal::CaptureStderr();
  run_ranks(4, [&](World& inner, Device& host) {
    const int rank = inner.rank();
    FaultyWorld world(
        inner, [&plant, rank](const InterceptedCall& call) { plant.collective(rank, call); });
    const auto real = one_thread_cpu();
    Ledger ledger;
    const auto control = inner.make_group("control", everyone(inner), host, &ledger, nullptr);
    Session session(world, config, *control, ledger, Logger(rank),
                    make_faulty_device(*real, plant.kernels(rank)));
    TrainJob job(config, plant.source(config, session.rank().layout));
    EXPECT_EQ(job.run(session), 0);
  });
  const std::string err = testing::internal::GetCapturedStderr();
  std::multimap<std::string, Warned> warnings;
  std::istringstream lines(folder.read("runs/small/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("warning")) {
      warnings.emplace(json["warning"], Warned{json["step"], json["text"]});
      EXPECT_EQ(count(err, json["text"]), 1u) << err;
    }
  }
  EXPECT_EQ(count(err, "warning"), warnings.size()) << err;
  return warnings;
}

/// The ranks that are told to lose their time in `phase`.
std::set<int> slow_in(const std::string& phase, const Plant& plant) {
  std::set<int> ranks;
  const auto warnings = warnings_of(plant);
  const auto [begin, end] = warnings.equal_range("straggler");
  for (auto it = begin; it != end; ++it) {
    const std::string& text = it->second.text;
    EXPECT_GE(it->second.step, kStepsInARow);
    std::smatch match;
    const bool told = std::regex_search(
        text, match, std::regex("^ranks? ([0-9, ]+) ha(?:s|ve) been slower.* are in (\\w+):"));
    EXPECT_TRUE(told) << text;
    if (told && match[2] == phase) {
      std::istringstream list(match[1]);
      for (std::string rank; std::getline(list, rank, ',');) {
        EXPECT_TRUE(ranks.insert(std::stoi(rank)).second) << "told twice: " << text;
      }
    }
  }
  return ranks;
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(Warnings, NameARankWhoseDataComesLate) {
  const auto source = [](const Config& config, const Layout& layout) {
    return make_faulty_source(
        make_data_source(config, layout),
        [late = layout.rank == 2](std::vector<MicroBatch>&) { sleep_ms(late ? 60 : 0); });
  };
  EXPECT_EQ(slow_in("data", {.source = source}), std::set<int>{2});
}

TEST(Warnings, NameARankThatComputesSlowly) {
  const auto kernels = [](int rank) {
    FaultyKernels slow;
    slow.gemm = [rank](Device& real, Stream& stream, const Gemm& args) {
      sleep_ms(rank == 1 ? 5 : 0);
      real.gemm(stream, args);
    };
    return slow;
  };
  EXPECT_EQ(slow_in("compute", {.kernels = kernels}), std::set<int>{1});
}

TEST(Warnings, NameTheRanksOfAGroupThatCommunicatesSlowly) {
  const auto collective = [](int rank, const InterceptedCall& call) {
    sleep_ms(call.group == "tp" && rank >= 2 ? 4 : 0);
    call.forward();
  };
  EXPECT_EQ(slow_in("communication", {.collective = collective}), (std::set<int>{2, 3}));
}

/// Rows of a bare stack that are all the same, but for one step, another ten steps later, and one
/// data rank.
class OddStep final : public DataSource {
 public:
  OddStep(const Config& config, const Layout& layout, std::int64_t odd, float value)
      : global_batch_(config.train.global_batch), odd_(odd) {
    FfnRows rows{.input = {1, 2, 3, 4}, .expected = {0, 1, 0, 1}, .tokens = 2};
    usual_ = scripted_source(2, {rows});
    rows.expected[1] = layout.dp_rank() == 1 ? value : 1.0f;
    strange_ = scripted_source(2, {rows});
  }
  std::span<const MicroBatch> fetch_step(std::int64_t consumed) override {
    const std::int64_t step = consumed / global_batch_ + 1;
    return (step == odd_ || step == odd_ + 10 ? strange_ : usual_)->fetch_step(consumed);
  }
  std::int64_t evaluation_batches() const override { return 0; }
  const MicroBatch& fetch_evaluation(std::int64_t i) override {
    return usual_->fetch_evaluation(i);
  }
  std::string describe() const override { return "two odd steps"; }

 private:
  std::int64_t global_batch_, odd_;
  std::unique_ptr<DataSource> usual_, strange_;
};

Plant odd_step(float value) {
  const auto change = [](Config& config) {
    config.model = {
        .kind = ModelKind::kFfn, .vocab_size = 0, .context = 0, .hidden = 2, .ffn = 4, .layers = 1};
  };
  return {.settings = {"train.micro_batch=1", "train.global_batch=2", "optim.lr=1e-5",
                       "optim.schedule.min_lr=0", "precision=fp32"},
          .change = change,
          .source = [value](const Config& config, const Layout& layout) {
            return std::make_unique<OddStep>(config, layout, 30, value);
          }};
}

TEST(Warnings, SayWhichRanksRowsMakeALossThatIsNotFinite) {
  const auto warnings = warnings_of(odd_step(std::numeric_limits<float>::quiet_NaN()));
  ASSERT_EQ(warnings.count("non_finite"), 1u);
  const Warned& warned = warnings.find("non_finite")->second;
  EXPECT_EQ(warned.step, 30);
  EXPECT_THAT(warned.text, AllOf(HasSubstr("the loss is not finite on ranks 2, 3, while"),
                                 HasSubstr("samples 58 to 59"), HasSubstr("is skipped")));
  EXPECT_EQ(warnings.count("loss_spike"), 0u);
}

TEST(Warnings, SayThatTheWeightsAreNotFinite) {
  const auto warnings =
      warnings_of({.settings = {"train.steps=3", "train.max_skipped=10",
                                "optim={lr: 1e39, schedule: {kind: constant, warmup_steps: 0}}"}});
  ASSERT_EQ(warnings.count("non_finite"), 1u);
  const Warned& warned = warnings.find("non_finite")->second;
  EXPECT_EQ(warned.step, 2);
  EXPECT_THAT(warned.text, HasSubstr("the weights are not finite: `embed.weight` and "));
}

TEST(Warnings, TellOfALossThatJumpsOnce) {
  const auto warnings = warnings_of(odd_step(1000.0f));
  ASSERT_EQ(warnings.count("loss_spike"), 1u);
  const Warned& warned = warnings.find("loss_spike")->second;
  EXPECT_EQ(warned.step, 30);
  EXPECT_THAT(warned.text, AllOf(HasSubstr("standard deviations above"),
                                 HasSubstr("over the 29 steps before"), HasSubstr("optim.lr")));
}

TEST(Warnings, TellOfAJobFarBelowItsRoofOnce) {
  const auto warnings = warnings_of({.settings = {"train.steps=41"}});
  ASSERT_EQ(warnings.count("low_roof"), 1u);
  EXPECT_EQ(warnings.find("low_roof")->second.step, kStepsInARow);
  EXPECT_EQ(warnings.count("non_finite") + warnings.count("loss_spike"), 0u);
}

}  // namespace
}  // namespace tandem::test
