#include "tools/bench/sample_steps.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.h"

namespace tandem {

namespace {

constexpr const char* kFollowTheLayers = "train/plan/work.cpp has to follow the layers";

double seconds_between(TraceRecorder::Clock::time_point start,
                       TraceRecorder::Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

/// A step is the sum of many calls: their mean counts, with what now and then takes longer.
double mean(std::span<const double> values) {
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
  works.at("fetch").bytes *= static_cast<double>(config.accumulation());
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

RangeSample range_sample(const RangeWork& work, std::span<const double> calls,
                         std::int64_t micro_batches) {
  const std::size_t first = calls.size() / static_cast<std::size_t>(micro_batches);
  if (first == 0 || first == calls.size()) {
    return {work, mean(calls), mean(calls)};
  }
  return {work, mean(calls.first(first)), mean(calls.subspan(first))};
}

StepSampler::StepSampler(const RankContext& rank, const Config& config)
    : rank_(rank),
      config_(config),
      sizes_(config_, rank_.layout, rank_.precision, max_rows(config_), measured_),
      arena_(*rank_.device, measured_),
      state_(config_, rank_.layout, rank_.precision, max_rows(config_), arena_),
      source_(make_data_source(config_, rank_.layout,
                               {.storage = rank_.precision.storage, .threads = rank_.threads})),
      trainer_(rank_, config_, state_, *source_),
      works_(works_of(config_, rank_.layout, rank_.precision, state_)) {
  while (trainer_.step().outcome == StepOutcome::kOverflow) {
  }
  trainer_.finish_weights();
}

StepSamples StepSampler::step() {
  for (;;) {
    TraceRecorder trace;
    rank_.profiler->record(&trace);
    const StepOutcome outcome = trainer_.step().outcome;
    trainer_.finish_weights();
    rank_.profiler->record(nullptr);
    if (outcome == StepOutcome::kUpdated) {
      return take_apart(trace);
    }
    if (outcome != StepOutcome::kOverflow) {
      throw InternalError("a step on generated data was skipped: its loss is not finite");
    }
  }
}

StepSamples StepSampler::take_apart(const TraceRecorder& trace) const {
  std::map<std::string, std::vector<double>, std::less<>> ranges;
  struct Calls {
    std::vector<double> seconds, since;
  };
  std::map<std::pair<Collective, std::int64_t>, Calls> collectives;
  std::map<std::string, double*, std::less<>> waited_for;  // the last call of each label
  StepSamples samples;
  double parts = 0.0;
  const TraceRecorder::Event* before = nullptr;   // in the order in which they ended
  const TraceRecorder::Event* unknown = nullptr;  // the last range that is no part
  auto last_collective =
      trace.events().empty() ? TraceRecorder::Clock::time_point() : trace.events().front().start;
  for (const TraceRecorder::Event& event : trace.events()) {
    if (event.track != 0) {
      continue;
    }
    const std::string_view text(event.text.data());
    const double seconds = seconds_between(event.start, event.end);
    const bool holds_others = before != nullptr && before->start >= event.start;
    before = &event;
    if (text == "micro-batch" && unknown != nullptr && unknown->start >= event.start) {
      throw InternalError("the planner does not know the range \"" +
                          std::string(unknown->text.data()) + "\" of a step: " + kFollowTheLayers);
    }
    if (text == "step") {
      samples.rest = std::max(0.0, seconds - parts);
      continue;
    }
    if (works_.contains(text)) {
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
    } else if (!holds_others) {
      unknown = &event;
    }
  }
  for (const auto& [name, work] : works_) {
    const auto found = ranges.find(name);
    if (found == ranges.end()) {
      throw InternalError("no step has the range \"" + name +
                          "\" that the planner knows: " + kFollowTheLayers);
    }
    // The first micro-batch writes the whole table, the others only rows: no matter of caches.
    const bool differs = name == "embed backward";
    samples.ranges.push_back(
        range_sample(work, found->second, differs ? 1 : config_.accumulation()));
  }
  const int ranks = std::max(rank_.tensor_parallel->size(), rank_.data_parallel->size());
  for (auto& [key, calls] : collectives) {
    const auto& [op, payload] = key;  // of a gather or scatter, the rank's own part
    samples.collectives.push_back(
        {op, ranks, static_cast<double>(payload) * (op == Collective::kAllReduce ? 1 : ranks),
         std::ssize(calls.seconds), mean(calls.seconds), mean(calls.since)});
  }
  return samples;
}

}  // namespace tandem
