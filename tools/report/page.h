// The page: a head, the sections, and one JSON for the script, put into page.html.
#pragma once

#include <string>
#include <vector>

#include "tools/report/run_data.h"

namespace tandem::report {

// page.html, page.css and page.js, as they were when this was built.
extern const char* const kPageHtml;
extern const char* const kPageCss;
extern const char* const kPageJs;

/// Runs that a page has letters and colours for.
inline constexpr std::size_t kMostRuns = 12;

/// One self-contained HTML page of 1 to kMostRuns runs: it loads nothing. `hardware`: what times
/// are predicted for, as `plan --hardware` takes it.
std::string page(const std::vector<RunData>& runs, const std::string& hardware);

}  // namespace tandem::report
