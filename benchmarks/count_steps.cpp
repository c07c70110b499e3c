// count_steps CONFIG [KEY=VALUE...]: a few training steps, ranks as threads, and nothing else that
// costs: no roof, no run directory. For scripts/perf_guard.sh, which runs it under callgrind with
// --instr-atstart=no; the counted steps turn it on. Prints as JSON how many steps those are, the
// collectives of rank 0 and their bytes in one of them, and what else instructions depend on.
#include <nlohmann/json.hpp>
#include <valgrind/callgrind.h>

#include <exception>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "core/log.h"
#include "parallel/world.h"
#include "train/data/source.h"
#include "train/session.h"
#include "train/state.h"
#include "train/trainer.h"

namespace tandem {
namespace {

constexpr int kSteps = 2;

nlohmann::ordered_json count(World& world, const Config& config) {
  std::vector<int> everyone(static_cast<std::size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto host = make_reference_device(1);
  Ledger ledger;
  const auto control = world.make_group("control", everyone, *host, &ledger, nullptr);
  Session session(world, config, *control, ledger, Logger(world.rank()), make_cpu_device(1));
  RankContext& rank = session.rank();
  rank.precision = precision_of(config, rank.device->kind());
  const auto source =
      make_data_source(config, rank.layout, {.storage = rank.precision.storage, .threads = 1});
  Arena measured;
  TrainState(config, rank.layout, rank.precision, max_rows(config), measured);
  Arena arena(*rank.device, measured);
  TrainState state(config, rank.layout, rank.precision, max_rows(config), arena);
  Trainer trainer(rank, config, state, *source);
  trainer.step();  // builds primitives, grows what grows once
  const std::uint64_t calls = ledger.calls(), bytes = ledger.bytes();
  CALLGRIND_START_INSTRUMENTATION;
  for (int i = 0; i < kSteps; ++i) {
    trainer.step();
  }
  CALLGRIND_STOP_INSTRUMENTATION;
  return {{"compiler", __VERSION__},
          {"device", rank.device->describe()},
          {"steps", kSteps},
          {"collectives", (ledger.calls() - calls) / kSteps},
          {"bytes", (ledger.bytes() - bytes) / kSteps}};
}

int run(int argc, char** argv) {
  if (argc < 2) {
    throw ConfigError("usage: count_steps CONFIG [KEY=VALUE...]");
  }
  const Config config = load_config({.file = argv[1], .overrides = {argv + 2, argv + argc}});
  const auto thrown = run_local_world(config.world(), {}, [&](World& world) {
    const auto counts = count(world, config);
    if (world.rank() == 0) {
      std::cout << counts << '\n';
    }
  });
  for (const std::exception_ptr& error : thrown) {
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  try {
    return tandem::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "count_steps: " << error.what() << '\n';
    return 1;
  }
}
