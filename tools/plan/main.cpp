#include <iostream>

#include "tools/plan/against.h"
#include "tools/plan/table.h"
#include "train/launch.h"
#include "train/plan/predict.h"
#include "train/state.h"

namespace tandem {
namespace {

constexpr std::size_t kLines = 20;

int run(const CommandLine& line, const Config& config) {
  const Hardware hardware = load_hardware(line.hardware, precision_of(config).storage);
  if (!line.against.empty()) {
    const Comparison comparison = compare_with_run(line.against, config, hardware);
    std::cout << comparison_table(comparison) << std::flush;
    if (!line.json.empty()) {
      write_comparison(comparison, line.json);
    }
    return 0;
  }
  const SampledRows sampled(config);
  const int world = line.world ? static_cast<int>(*line.world) : config.world();
  const std::vector<Prediction> layouts = plan(config, world, hardware, sampled);
  std::cout << plan_table(layouts, hardware, sampled, kLines) << std::flush;
  if (!line.json.empty()) {
    write_plan(layouts, hardware, sampled, line.json);
  }
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  using namespace tandem;
  return launch_alone(
      {.name = "plan",
       .purpose = "Memory, traffic and step time of every layout of N ranks, best first.",
       .examples = {"build/plan --config configs/ffn_tp2_dp2.yaml --world 64 --hardware h100",
                    "build/plan --against runs/ffn_tp2_dp2 --hardware here.yaml"},
       .has_plan = true,
       .has_json = true},
      argc, argv, run);
}
