// A device with the kernels replaced whose results are rounded by nature: norms become the
// identity, the loss linear with integer coefficients, swiglu relu(gate) * up. Everything else, the
// matmuls and all communication, is the real thing.
#pragma once

#include <memory>

#include "core/device.h"

namespace tandem::verify {

/// `absolute`: the loss's coefficients lose their signs, to bound every sum. `inner` outlives
/// the result.
std::unique_ptr<Device> make_exact_device(Device& inner, bool absolute);

}  // namespace tandem::verify
