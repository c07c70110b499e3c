#include "tools/bench/sample_configs.h"

#include <fmt/format.h>

#include <string>

namespace tandem {

namespace {

using Settings = std::vector<std::string>;

Config sample_config(DType storage, int ranks, const std::vector<Settings>& settings) {
  constexpr const char* kBase = R"(model: {layers: 2}
data: {format: synthetic}
train: {micro_batch: 1, eval_every: 0}
optim: {lr: 1.0e-4, schedule: {kind: constant, warmup_steps: 0, decay_steps: 0}}
)";
  Settings overrides = {fmt::format("precision={}", name_of(storage)),
                        fmt::format("train.global_batch={}", 2 * ranks)};
  for (const Settings& some : settings) {
    overrides.insert(overrides.end(), some.begin(), some.end());
  }
  return parse_config(kBase, {.file = "bench hardware", .overrides = overrides});
}

}  // namespace

std::vector<Config> model_configs(DType storage) {
  const std::vector<Settings> models = {
      {"model.kind=ffn", "model.hidden=512", "model.ffn=1024", "data.seq_len=256"},
      {"model.kind=ffn", "model.hidden=128", "model.ffn=512", "data.seq_len=1024",
       "model.activation=swiglu"},
      {"model.kind=ffn", "model.hidden=512", "model.ffn=128", "data.seq_len=1536",
       "model.dropout=0.1"},
      {"model.kind=ffn", "model.hidden=768", "model.ffn=1536", "data.seq_len=64",
       "model.activation=swiglu"},
      {"model.vocab_size=256", "model.context=16", "model.hidden=256", "model.ffn=1024",
       "data.seq_len=256", "data.documents=packed", "model.activation=relu"},
      {"model.vocab_size=512", "model.context=8", "model.hidden=512", "model.ffn=1024",
       "data.seq_len=128", "data.documents=packed", "model.dropout=0.1", "model.activation=relu"},
      {"model.vocab_size=256", "model.context=4", "model.hidden=128", "model.ffn=512",
       "data.seq_len=2048", "data.documents=packed"},
      {"model.vocab_size=2048", "model.context=2", "model.hidden=384", "model.ffn=768",
       "data.seq_len=256", "data.documents=packed", "model.activation=relu"}};
  std::vector<Config> configs;
  for (const Settings& model : models) {
    configs.push_back(sample_config(storage, 1, {model, {"parallel.dp=1"}}));
  }
  return configs;
}

std::vector<Config> split_configs(int ranks) {
  // Any number of ranks has to divide what they share.
  const auto divided = [&](int size) { return (size + ranks - 1) / ranks * ranks; };
  const std::vector<Settings> models = {
      {"model.kind=ffn", "model.hidden=512", fmt::format("model.ffn={}", divided(1024)),
       fmt::format("data.seq_len={}", divided(256))},
      {"model.vocab_size=512", "model.context=8", "model.hidden=512",
       fmt::format("model.ffn={}", divided(1024)), fmt::format("data.seq_len={}", divided(128)),
       "data.documents=packed", "model.dropout=0.1"}};
  const std::string tp = fmt::format("parallel.tp={}", ranks);
  const std::string dp = fmt::format("parallel.dp={}", ranks);
  const std::vector<Settings> layouts = {
      {tp}, {tp, "parallel.sequence_parallel=true"}, {dp}, {dp, "parallel.zero=1"}};
  std::vector<Config> configs;
  for (const Settings& model : models) {
    for (const Settings& layout : layouts) {
      configs.push_back(sample_config(DType::kF32, ranks, {model, layout}));
    }
  }
  return configs;
}

}  // namespace tandem
