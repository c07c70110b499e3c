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

double seconds_between(TraceRecorder::Clock::time_point start,
                       TraceRecorder::Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

/// A step is the sum of many ranges: of each its mean counts, with what now and then takes longer.
double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The ranges that a rank computes in, by name.
std::map<std::string, RangeWork, std::less<>> works_of(const Config& config, const Layout& layout,
                                                       const Precision& precision,
                                                       const TrainState& state) {
  const RankWork work(config, layout, precision, static_cast<double>(max_rows(config)), false);
  double owned = 0.0;
  for (const OwnedRange& range : state.store.owned()) {
    owned += static_cast<double>(range.range.main_grad.numel());
  }
  std::map<std::string, RangeWork, std::less<>> works;
  for (const RangeWork& each : work.all()) {
    works.emplace(each.range, each);
  }
  for (const RangeWork& each :
       {gradient_norm_work(precision, owned), update_work(config, precision, owned)}) {
    works.emplace(each.range, each);
  }
  // The profiler's range covers all micro-batches of a step.
  RangeWork fetch = work.fetch();
  fetch.bytes *= static_cast<double>(config.accumulation());
  works.erase(std::string(fetch.range));
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
  struct Calls {
    std::vector<double> seconds, since;
  };
  std::map<std::pair<Collective, std::int64_t>, Calls> collectives;
  std::map<std::string, double*, std::less<>> waited_for;  // the last call of each label
  std::vector<double> rests;
  double parts = 0.0;
  auto last_collective =
      trace.events().empty() ? TraceRecorder::Clock::time_point() : trace.events().front().start;
  for (const TraceRecorder::Event& event : trace.events()) {
    if (event.track != 0) {
      continue;
    }
    const std::string_view text(event.text.data());
    const double seconds = seconds_between(event.start, event.end);
    if (text == "step") {
      rests.push_back(std::max(0.0, seconds - parts));
      parts = 0.0;
      continue;
    }
    if (works.contains(text)) {
      ranges[std::string(text)].push_back(seconds);
      parts += seconds;
    } else if (const auto op = collective_of(text)) {
      Calls& calls = collectives[{*op, event.payload}];
      calls.seconds.reserve(TraceRecorder::kMostEvents / 8);  // addresses stay
      calls.seconds.push_back(seconds);
      calls.since.push_back(seconds_between(last_collective, event.start));
      last_collective = event.end;
      waited_for[std::string(text.substr(0, text.rfind(' ')))] = &calls.seconds.back();
      parts += seconds;
    } else if (text.ends_with(" wait")) {
      if (const auto call = waited_for.find(text.substr(0, text.rfind(' ')));
          call != waited_for.end()) {
        *call->second += seconds;
        parts += seconds;
        last_collective = event.end;
      }
    }
  }
  StepSamples samples;
  for (const auto& [name, work] : works) {
    const auto found = ranges.find(name);
    if (found == ranges.end()) {
      throw InternalError(
          "no step has the range \"" + name +
          "\" that the planner knows: train/plan/work.cpp has to follow the layers");
    }
    samples.ranges.push_back({work, mean(found->second)});
  }
  const int ranks = std::max(rank.tensor_parallel->size(), rank.data_parallel->size());
  for (auto& [key, calls] : collectives) {
    const auto& [op, payload] = key;  // of a gather or scatter, the rank's own part
    samples.collectives.push_back(
        {op, ranks, static_cast<double>(payload) * (op == Collective::kAllReduce ? 1 : ranks),
         std::ssize(calls.seconds), mean(calls.seconds), mean(calls.since)});
  }
  samples.rest = rests.empty() ? 0.0 : mean(rests);
  return samples;
}

}  // namespace tandem
