// The parts of the page, one function each. A part of which no run has anything is empty.
#pragma once

#include <string>
#include <vector>

#include "tools/report/run_data.h"

namespace tandem::report {

struct Section {
  std::string id, title, html;
  std::vector<std::string> charts;  ///< DrawnChart::json of its charts
};

Section warnings_section(const std::vector<RunData>& runs);
Section training_section(const std::vector<RunData>& runs);
Section speed_section(const std::vector<RunData>& runs);
Section time_section(const std::vector<RunData>& runs);
Section traffic_section(const std::vector<RunData>& runs);
/// What config and layout say beside what the run counted and, on `hardware`, took.
Section predicted_section(const std::vector<RunData>& runs, const std::string& hardware);
Section memory_section(const std::vector<RunData>& runs);
Section config_section(const std::vector<RunData>& runs);
Section environment_section(const std::vector<RunData>& runs);

}  // namespace tandem::report
