// What the planner says of one layout in a line: for `train --dry-run`.
#pragma once

#include <string>

#include "core/device.h"
#include "train/config.h"

namespace tandem {

/// "412 ms a step (+- 25 %), 9.3 ms of it exposed, 9.8 k tokens/s: on 2 CPUs, ranks as threads". On
/// this machine as `bench hardware` measured it; what to do where it was not, or is a GPU. Reads up
/// to a few thousand samples of the data.
std::string plan_line(const Config& config, DeviceKind device, DType storage);

}  // namespace tandem
