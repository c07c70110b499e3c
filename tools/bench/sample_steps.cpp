#include "tools/bench/sample_steps.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/arena.h"
#include "train/data/source.h"
#include "train/state.h"
#include "train/trainer.h"

namespace tandem {

namespace {

double seconds_of(const TraceRecorder::Event& event) {
  return std::chrono::duration<double>(event.end - event.start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double middle_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 10);
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) /
         static_cast<double>(std::ssize(values) - 2 * cut);
}

/// The ranges that a rank computes in, by name.
std::map<std::string, RangeWork, std::less<>> works_of(const Config& config, const Layout& layout,
                                                       const Precision& precision,
                                                       const TrainState& state) {
  const RankWork work(config, layout, precision, static_cast<double>(max_rows(config)));
  double owned = 0.0;
  for (const OwnedRange& range : state.store.owned()) {
    owned += static_cast<double>(range.range.main_grad.numel());
  }
  std::map<std::string, RangeWork, std::less<>> works;
  for (const RangeWork& each : {work.norm(),
                                work.fc1(),
                                work.fc2(),
                                work.residual(),
                                work.dropout_backward(),
                                work.fc2_dgrad(),
                                work.fc1_dgrad(),
                                work.fc2_wgrad(),
                                work.fc1_wgrad(),
                                work.norm_backward(),
                                work.upload(),
                                work.embed(),
                                work.embed_backward(),
                                work.head(),
                                work.cross_entropy(),
                                work.head_dgrad(),
                                work.head_wgrad(),
                                work.squared_error(),
                                gradient_norm_work(precision, owned),
                                update_work(config, precision, owned)}) {
    works.emplace(each.range, each);
  }
  // The profiler's range covers all micro-batches of a step.
  RangeWork fetch = work.fetch();
  fetch.bytes *= static_cast<double>(config.accumulation());
  works.emplace("fetch", fetch);
  return works;
}

std::optional<Collective> collective_of(std::string_view text) {
  for (const Collective op :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    if (text.ends_with(" " + std::string(name_of(op)))) {
      return op;
    }
  }
  return std::nullopt;
}

}  // namespace

StepSamples sample_steps(RankContext& rank, const Config& config) {
  const std::int64_t rows = max_rows(config);
  Arena measured;
  const TrainState sizes(config, rank.layout, rank.precision, rows, measured);
  Arena arena(*rank.device, measured);
  TrainState state(config, rank.layout, rank.precision, rows, arena);
  const auto source = make_data_source(
      config, rank.layout, {.storage = rank.precision.storage, .threads = rank.threads});
  Trainer trainer(rank, config, state, *source);
  const auto works = works_of(config, rank.layout, rank.precision, state);

  trainer.step();  // builds primitives and touches memory
  TraceRecorder trace;
  rank.profiler->record(&trace);
  while (trainer.steps() < config.train.steps) {
    trainer.step();
  }
  trainer.finish_weights();
  rank.profiler->record(nullptr);

  std::map<std::string, std::vector<double>, std::less<>> ranges;
  std::map<std::pair<Collective, std::int64_t>, std::vector<double>> collectives;
  std::map<std::string, double*, std::less<>> waited_for;  // the last call of each label
  std::vector<double> rests;
  double parts = 0.0;
  for (const TraceRecorder::Event& event : trace.events()) {
    if (event.track != 0) {
      continue;
    }
    const std::string_view text(event.text.data());
    const double seconds = seconds_of(event);
    if (text == "step") {
      rests.push_back(std::max(0.0, seconds - parts));
      parts = 0.0;
      continue;
    }
    if (works.contains(text)) {
      ranges[std::string(text)].push_back(seconds);
      parts += seconds;
    } else if (const auto op = collective_of(text)) {
      auto& calls = collectives[{*op, event.payload}];
      calls.reserve(TraceRecorder::kMostEvents / 8);  // addresses stay
      calls.push_back(seconds);
      waited_for[std::string(text.substr(0, text.rfind(' ')))] = &calls.back();
      parts += seconds;
    } else if (text.ends_with(" wait")) {
      if (const auto call = waited_for.find(text.substr(0, text.rfind(' ')));
          call != waited_for.end()) {
        *call->second += seconds;
        parts += seconds;
      }
    }
  }
  StepSamples samples;
  for (auto& [name, seconds] : ranges) {
    samples.ranges.push_back({works.find(name)->second, median(seconds)});
  }
  const int ranks = std::max(rank.tensor_parallel->size(), rank.data_parallel->size());
  for (auto& [key, seconds] : collectives) {
    const auto& [op, payload] = key;  // of a gather or scatter, the rank's own part
    samples.collectives.push_back(
        {op, ranks, static_cast<double>(payload) * (op == Collective::kAllReduce ? 1 : ranks),
         middle_mean(seconds)});
  }
  samples.rest = rests.empty() ? 0.0 : median(rests);
  return samples;
}

}  // namespace tandem
