// Numbers of a device's tensors as doubles on the host, and back.
#pragma once

#include <vector>

#include "core/device.h"

namespace tandem::verify {

/// A contiguous tensor of floats or int32. Waits for `stream`.
std::vector<double> read_values(Device& device, Stream& stream, const Tensor& tensor);
/// Rounded to the tensor's floating type. Waits for `stream`.
void write_values(Device& device, Stream& stream, const Tensor& tensor,
                  const std::vector<double>& values);

}  // namespace tandem::verify
