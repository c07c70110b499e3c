#include "tools/plan/table.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>

#include "train/console.h"
#include "train/memory.h"

namespace tandem {

namespace {

using Json = nlohmann::ordered_json;

/// Of the data sheet's peak, or a measured CPU's fastest matmul; 0 where it is unknown.
double utilization(const Prediction& p, const Hardware& hardware) {
  const int world = p.config.world();
  const double peak = hardware.peak_of(world);
  return peak == 0.0 ? 0.0 : p.flops_per_s() / (peak * world);
}

Json traffic_json(const std::vector<Traffic>& traffic) {
  Json labels = Json::array();
  for (const auto& [key, calls, bytes] : traffic) {
    labels.push_back({{"group", key.group.view()},
                      {"ranks", key.ranks},
                      {"op", name_of(key.op)},
                      {"dtype", name_of(key.dtype)},
                      {"label", key.label.view()},
                      {"calls", calls},
                      {"bytes", bytes},
                      {"sent_bytes", sent_bytes(key.op, static_cast<double>(bytes), key.ranks)}});
  }
  return labels;
}

/// Labels are written for the best layout alone: those of thousands would be many megabytes.
Json layout_json(const Prediction& p, const Hardware& hardware, bool with_labels) {
  const ParallelConfig& parallel = p.config.parallel;
  Json memory;
  for (std::size_t c = 0; c < kMemoryCategories; ++c) {
    memory[std::string(name_of(static_cast<MemoryCategory>(c)))] = p.memory[c];
  }
  memory["data"] = p.beside.data;
  memory["checkpoint"] = p.beside.checkpoint;
  memory["libraries"] = p.beside.libraries;
  memory["reserved"] = p.reserved;
  Json phases;
  for (const StepTime::Phase& phase : p.time.phases) {
    phases[phase.name] = phase.seconds * 1e3;
  }
  std::uint64_t calls = 0, bytes = 0;
  for (const Traffic& traffic : p.traffic) {
    calls += traffic.calls;
    bytes += traffic.bytes;
  }
  const double ms = p.time.total() * 1e3;
  Json json = {
      {"tp", parallel.tp},
      {"dp", parallel.dp},
      {"zero", parallel.zero},
      {"sequence_parallel", parallel.sequence_parallel},
      {"micro_batch", p.config.train.micro_batch},
      {"accumulation", p.config.accumulation()},
      {"fits", p.fits},
      {"memory_bytes", p.memory_bytes()},
      {"memory", memory},
      {"rows", p.rows},
      {"step_ms", ms},
      {"step_ms_interval", {ms * (1.0 - hardware.uncertainty), ms * (1.0 + hardware.uncertainty)}},
      {"compute_ms", p.time.compute * 1e3},
      {"exposed_tp_ms", p.time.exposed_tp * 1e3},
      {"exposed_dp_ms", p.time.exposed_dp * 1e3},
      {"exposed_control_ms", p.time.exposed_control * 1e3},
      {"phases_ms", phases},
      {"tokens_per_s", p.tokens_per_s()},
      {"flops", p.flops},
      {"tflops_per_rank", p.flops_per_s() / p.config.world() / 1e12},
      {"mfu", utilization(p, hardware)},
      {"comm_calls", calls},
      {"comm_bytes", bytes},
      {"why", p.why}};
  if (with_labels) {
    json["traffic"] = traffic_json(p.traffic);
  }
  return json;
}

}  // namespace

std::string plan_table(const std::vector<Prediction>& plan, const Hardware& hardware,
                       const SampledRows& sampled, std::size_t most) {
  const Config& config = plan.front().config;
  std::string text = fmt::format("tandem plan: {} on {} rank{} of {}\n", config.name,
                                 config.world(), config.world() == 1 ? "" : "s", hardware.name);
  text += fmt::format("  model   {} FLOPs a step, {} tokens; rows {}\n",
                      short_number(plan.front().flops), short_number(plan.front().tokens),
                      sampled.note());
  text += fmt::format("  times   90 % interval: +- {:.0f} %\n\n", hardware.uncertainty * 100.0);
  text += "   tp   dp zero   sp  micro accum     memory    step ms  exposed   tokens/s   mfu\n";
  std::size_t shown = 0;
  for (const Prediction& p : plan) {
    if (most != 0 && shown == most) {
      text += fmt::format("  ... {} more: --json FILE has all\n", plan.size() - shown);
      break;
    }
    ++shown;
    const ParallelConfig& parallel = p.config.parallel;
    text += fmt::format("  {:>3} {:>4} {:>4} {:>4} {:>6} {:>5} {:>10}", parallel.tp, parallel.dp,
                        parallel.zero, parallel.sequence_parallel ? "yes" : "-",
                        p.config.train.micro_batch, p.config.accumulation(),
                        bytes_text(static_cast<std::size_t>(p.memory_bytes())));
    if (p.fits) {
      const double mfu = utilization(p, hardware);
      text += fmt::format(" {:>10.2f} {:>8.2f} {:>10}  {}", p.time.total() * 1e3,
                          p.time.exposed() * 1e3, short_number(p.tokens_per_s()),
                          mfu > 0.0 ? fmt::format("{:.1f} %", 100.0 * mfu) : "-");
    }
    text += p.why.empty() ? "\n" : "  " + p.why + "\n";
  }
  if (std::none_of(plan.begin(), plan.end(), [](const Prediction& p) { return p.fits; })) {
    text += "  none of these layouts fits: try more ranks, --world N\n";
  }
  return text;
}

void write_plan(const std::vector<Prediction>& plan, const Hardware& hardware,
                const SampledRows& sampled, const std::string& file) {
  Json layouts = Json::array();
  for (const Prediction& prediction : plan) {
    layouts.push_back(layout_json(prediction, hardware, &prediction == plan.data()));
  }
  const Json json = {{"config", plan.front().config.name},
                     {"world", plan.front().config.world()},
                     {"hardware", hardware.name},
                     {"sources", hardware.sources},
                     {"rows", sampled.note()},
                     {"layouts", layouts}};
  std::ofstream out(file);
  out << json.dump(1) << '\n';
  if (!out.flush()) {
    throw ConfigError("--json " + file + ": cannot be written");
  }
}

}  // namespace tandem
