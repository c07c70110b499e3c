#include "train/plan/rows.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "parallel/layout.h"
#include "train/data/source.h"

namespace tandem {

namespace {

constexpr std::int64_t kMostSamples = 4096;

}  // namespace

SampledRows::SampledRows(const Config& config)
    : mean_(static_cast<double>(config.data.seq_len)), note_("exact: every position is a row") {
  if (config.model.kind == ModelKind::kFfn) {
    return;
  }
  Config one = config;
  one.parallel.tp = one.parallel.dp = 1;
  one.train.micro_batch = 1;
  const std::int64_t steps = std::max<std::int64_t>(1, kMostSamples / config.train.global_batch);
  try {
    const auto source = make_data_source(one, Layout{1, 1, 0});
    for (std::int64_t step = 0; step < std::min<std::int64_t>(steps, 8); ++step) {
      for (const MicroBatch& sample : source->fetch_step(step * config.train.global_batch)) {
        tokens_.push_back(sample.tokens);
      }
    }
  } catch (const Error& error) {
    tokens_.clear();
    note_ = "assumed full: " + std::string(error.what());
    return;
  }
  const auto total = std::accumulate(tokens_.begin(), tokens_.end(), std::int64_t{0});
  mean_ = static_cast<double>(total) / static_cast<double>(tokens_.size());
  if (std::all_of(tokens_.begin(), tokens_.end(),
                  [&](std::int64_t n) { return n == config.data.seq_len; })) {
    tokens_.clear();
  } else {
    note_ = "sampled: " + std::to_string(tokens_.size()) + " samples of the first steps";
  }
}

RowCounts SampledRows::counts(const Config& config) const {
  const std::int64_t multiple = row_multiple(config);
  const auto padded = [&](std::int64_t tokens) {
    return (tokens + multiple - 1) / multiple * multiple;
  };
  const double tokens = mean_ * static_cast<double>(config.train.global_batch);
  const std::int64_t size = config.train.micro_batch;
  if (tokens_.empty()) {
    return {static_cast<double>(padded(size * config.data.seq_len)), tokens};
  }
  // As train/data/step_rule.h shares a step out: micro-batch m of data rank d.
  const std::int64_t per_rank = config.train.global_batch / config.parallel.dp;
  const auto steps = std::ssize(tokens_) / config.train.global_batch;
  double total = 0.0;
  std::vector<std::set<std::int64_t>> different(static_cast<std::size_t>(config.parallel.dp));
  for (std::int64_t s = 0; s < steps; ++s) {
    for (std::int64_t m = 0; m < config.accumulation(); ++m) {
      std::int64_t most = 0;
      for (std::int64_t d = 0; d < config.parallel.dp; ++d) {
        const auto first =
            tokens_.begin() + s * config.train.global_batch + d * per_rank + m * size;
        const std::int64_t rows = padded(std::accumulate(first, first + size, std::int64_t{0}));
        most = std::max(most, rows);
        different[static_cast<std::size_t>(d)].insert(rows);
      }
      total += static_cast<double>(most);
    }
  }
  const auto most_different =
      std::max_element(different.begin(), different.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return {total / static_cast<double>(steps * config.accumulation()), tokens,
          static_cast<double>(most_different->size())};
}

}  // namespace tandem
