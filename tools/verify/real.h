// The real argument: a few steps of the config as it stands, under its layout, on one rank, and on
// the reference device in double from the same fp32 masters.
#pragma once

#include "tools/verify/compare.h"
#include "tools/verify/noisy_update.h"

namespace tandem::verify {

/// Runs of one rank whose distance from the reference estimates what rounding does. One sample
/// would be no estimate: it refuses clean runs.
inline constexpr int kVariants = 8;
/// More of them, for a second look at a row that fails narrowly.
inline constexpr int kMoreVariants = 24;

/// The config cut to what takes seconds, data ranks, accumulation 2 and uneven counts kept; `cut`
/// says what was cut, or nothing.
Config cut_config(const Config& config, std::string& cut);

/// Everything is collective over `world`: the one-rank runs are dealt out to the ranks.
class RealArgument {
 public:
  RealArgument(World& world, const Config& config, const RunPlan& plan);

  /// The layout, the reference, the planted faults and kVariants variants.
  void run(const Decorators& under_test);
  /// kMoreVariants variants more, whose updates see the rounding that the first ones measured.
  void look_again();

  /// Complete on rank 0 alone.
  RealRuns& runs() { return runs_; }

 private:
  void add_variants(int count, const GradientNoise& noise);
  GradientNoise measured_noise();

  World* world_;
  Config config_;
  RunPlan plan_;
  std::unique_ptr<Device> host_;
  std::unique_ptr<Communicator> control_;
  Outcome names_;
  int variants_ = 0;
  RealRuns runs_;
};

}  // namespace tandem::verify
