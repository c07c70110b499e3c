// An outside referee. The real trainer runs five steps under a layout and writes down what it saw
// (initial weights, the rows of every micro-batch) and what it made of them (losses, gradients,
// norms, rates, weights); torch_reference.py computes all of that again with PyTorch's autograd,
// clipping and AdamW, in double on one rank, and compares. (B08, B109; B138: the norm is before
// clipping.)
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <mutex>

#include "core/philox.h"
#include "tests/train/process.h"
#include "tests/train/training.h"

namespace tandem::test {

namespace {

using nlohmann::json;

constexpr int kSteps = 5;

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  const auto values = tensor.span<T>();
  return {values.begin(), values.end()};
}

json rows_of(const MicroBatch& batch) {
  if (batch.rows == 0) {
    return {{"rows", 0}, {"tokens", 0}};
  }
  json rows = {{"rows", batch.rows}, {"tokens", batch.tokens}};
  if (batch.input.absent()) {
    rows["ids"] = values_of<std::int32_t>(batch.ids);
    rows["targets"] = values_of<std::int32_t>(batch.targets);
  } else {
    rows["input"] = values_of<float>(batch.input);
    rows["expected"] = values_of<float>(batch.expected);
  }
  return rows;
}

/// The micro-batches of each step, from all data ranks.
struct Rows {
  std::mutex mutex;
  json steps = json::array();
};

class RecordingSource final : public DataSource {
 public:
  RecordingSource(std::unique_ptr<DataSource> source, bool records, Rows& rows)
      : source_(std::move(source)), records_(records), rows_(&rows) {}

  std::span<const MicroBatch> fetch_step(std::int64_t consumed_samples) override {
    const auto batches = source_->fetch_step(consumed_samples);
    if (records_) {
      const std::scoped_lock lock(rows_->mutex);
      while (rows_->steps.size() <= step_) {
        rows_->steps.push_back(json::array());
      }
      for (const MicroBatch& batch : batches) {
        rows_->steps[step_].push_back(rows_of(batch));
      }
    }
    ++step_;
    return batches;
  }
  std::int64_t evaluation_batches() const override { return 0; }
  const MicroBatch& fetch_evaluation(std::int64_t index) override {
    return source_->fetch_evaluation(index);
  }
  std::string describe() const override { return source_->describe(); }

 private:
  std::unique_ptr<DataSource> source_;
  bool records_;
  Rows* rows_;
  std::size_t step_ = 0;
};

/// Adds normal(0, 0.3) to matrices and normal(0, 0.1) to vectors, a function of the global element:
/// activations then bend, and norm weights and biases are not the ones and zeros they start as.
void disturb(RankContext&, TrainState& state) {
  std::uint32_t stream = 0;
  for (Parameter& parameter : state.store.parameters()) {
    const auto weight = parameter.weight.flat().span<float>();
    const double deviation = parameter.is_matrix() ? 0.3 : 0.1;
    parameter.for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
      for (std::int64_t i = 0; i < length; ++i) {
        const auto element = static_cast<std::uint64_t>(global + i);
        weight[static_cast<std::size_t>(local + i)] +=
            static_cast<float>(deviation * philox_normals(99, RandomUse::kWeights, 1000 + stream,
                                                          element / 4)[element % 4]);
      }
    });
    ++stream;
  }
}

json as_json(const ModelConfig& model) {
  const auto activation = [&] {
    switch (model.activation) {
      case Activation::kGelu:
        return "gelu";
      case Activation::kSwiglu:
        return "swiglu";
      case Activation::kRelu:
        return "relu";
    }
    return "?";
  };
  return {{"kind", model.kind == ModelKind::kMlpLm ? "mlp_lm" : "ffn"},
          {"vocab_size", model.vocab_size},
          {"context", model.context},
          {"hidden", model.hidden},
          {"ffn", model.ffn},
          {"layers", model.layers},
          {"activation", activation()},
          {"norm", model.norm == NormKind::kLayerNorm ? "layernorm" : "rmsnorm"},
          {"norm_eps", model.norm_eps},
          {"bias", model.bias}};
}

json as_json(const Config& config) {
  const ScheduleConfig& schedule = config.optim.schedule;
  EXPECT_EQ(config.optim.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(schedule.kind, ScheduleKind::kCosine);
  return {{"model", as_json(config.model)},
          {"clip_grad_norm", config.train.clip_grad_norm},
          {"optim",
           {{"lr", config.optim.lr},
            {"betas", config.optim.betas},
            {"eps", config.optim.eps},
            {"weight_decay", config.optim.weight_decay},
            {"warmup_steps", schedule.warmup_steps},
            {"decay_steps", schedule.decay_steps},
            {"min_lr", schedule.min_lr}}}};
}

/// Runs the trainer and returns all of it.
json record(const std::string& name, const Config& config) {
  Rows rows;
  const auto options = [&](int steps, bool records) {
    return TrainingOptions{.steps = steps,
                           .make_source =
                               [&rows, records](const Config& c, const Layout& layout) {
                                 return std::make_unique<RecordingSource>(
                                     make_data_source(c, layout), records && layout.tp_rank() == 0,
                                     rows);
                               },
                           .prepare = disturb};
  };
  const Training first = train(config, options(1, false));
  const Training all = train(config, options(kSteps, true));
  json steps = json::array();
  for (const StepResult& step : all.steps) {
    EXPECT_EQ(step.outcome, StepOutcome::kUpdated);
    steps.push_back({{"loss", step.loss},
                     {"grad_norm", step.grad_norm},
                     {"lr", step.lr},
                     {"tokens", step.tokens}});
  }
  return {{"name", name},
          {"config", as_json(config)},
          {"steps", steps},
          {"micro_batches", rows.steps},
          {"initial", all.initial},
          {"first_gradients", first.gradients},
          {"last_gradients", all.gradients},
          {"weights", all.weights}};
}

/// A Python that imports torch, or "".
std::string python_with_torch() {
  const char* named = std::getenv("TANDEM_PYTHON");
  const ScratchFolder folder;
  for (const std::string& python : {std::string(named == nullptr ? "" : named),
                                    std::string("python3"), std::string("/usr/bin/python3")}) {
    if (!python.empty() && run({python, "-c", "import torch"}, folder).code == 0) {
      return python;
    }
  }
  return "";
}

/// Runs the model under one rank and under layouts of four, and asks the referee about each run.
void expect_parity(const Config& base) {
  static const std::string python = python_with_torch();
  ASSERT_NE(python, "") << "no Python here imports torch: install python3-torch "
                           "(scripts/install_deps.sh), or name one in TANDEM_PYTHON";
  json runs = json::array();
  runs.push_back(record("tp1_dp1", with_layout(base, 1, 1, 2)));
  runs.push_back(record("tp2_dp2", with_layout(base, 2, 2, 2)));
  Config shards = with_layout(base, 2, 2, 1);
  shards.parallel.sequence_parallel = true;
  runs.push_back(record("tp2_dp2_sequence_parallel", shards));
  runs.push_back(record("tp4_dp1", with_layout(base, 4, 1, 1)));

  const ScratchFolder folder;
  folder.write("runs.json", runs.dump());
  const Outcome outcome =
      run({python, TANDEM_SOURCE_DIR "/tests/parity/torch_reference.py", "runs.json"}, folder);
  std::cout << outcome.out;
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(TorchParity, GeluLayerNormAndBiasesTrainAsInPyTorch) { expect_parity(small_config()); }

TEST(TorchParity, SwigluAndRmsNormWithoutBiasesTrainAsInPyTorch) {
  Config config = small_config();
  config.model.vocab_size = 49;  // no tp divides it
  config.model.activation = Activation::kSwiglu;
  config.model.norm = NormKind::kRmsNorm;
  config.model.bias = false;
  expect_parity(config);
}

TEST(TorchParity, TheBareStackTrainsAsInPyTorch) {
  for (const Activation activation : {Activation::kRelu, Activation::kSwiglu}) {
    Config config = small_config();
    config.model.kind = ModelKind::kFfn;
    config.model.vocab_size = config.model.context = 0;
    config.model.activation = activation;
    expect_parity(config);
  }
}

}  // namespace

}  // namespace tandem::test
