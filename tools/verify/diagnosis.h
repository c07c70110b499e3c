// What a failed row means: the first bad tensor in backward order, by how much and where it is off,
// and the operator or rule between it and the last good one.
#pragma once

#include <string>
#include <vector>

#include "tools/verify/compare.h"

namespace tandem::verify {

/// Empty if all rows pass. `layout` is the run under test, `truth` what it should have been.
std::string diagnose(const std::vector<Row>& rows, const Outcome& layout, const Outcome& truth,
                     const Config& config);

}  // namespace tandem::verify
