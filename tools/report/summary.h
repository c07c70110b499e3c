// The few figures by which runs are told apart at a glance.
#pragma once

#include <string>
#include <vector>

#include "tools/report/run_data.h"

namespace tandem::report {

/// NaN where the run does not say. Speeds are medians that leave out the first step that was
/// written, which also builds what all later ones use.
struct Figures {
  double steps = 0.0, seconds = 0.0;  ///< seconds: of training, evaluation not counted
  double loss = 0.0;  ///< mean of the last steps, as many as curves are smoothed over
  double valid_loss = 0.0;
  double step_ms = 0.0, tokens_per_s = 0.0, roof_fraction = 0.0, mfu = 0.0;
  double data_ms = 0.0, exposed_ms = 0.0;
  double memory_bytes = 0.0;
  double skipped = 0.0;
};
Figures figures_of(const RunData& run);

/// "tp 2 x dp 2"; empty where the config does not say.
std::string layout_text(const RunData& run);

/// The run's name, with its letter where there are several.
std::string run_name(const std::vector<RunData>& runs, std::size_t run);

/// Large figures of one run, or a table of several.
std::string summary_html(const std::vector<RunData>& runs);

}  // namespace tandem::report
