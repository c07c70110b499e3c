// One rank whose gradients carry, into the optimizer's update, noise of the size that rounding was
// measured to have. AdamW divides a gradient by its own size, so an element whose contributions
// cancel to next to nothing turns the last bit of a sum into a visible part of its weight; a
// handful of one-rank runs round such an element alike and say too little about it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/device.h"
#include "train/state.h"

namespace tandem::verify {

/// Parameter name -> root mean square of an element's rounding error.
using GradientNoise = std::map<std::string, double>;

/// `state` is asked at each update where the gradients are; nullptr before there are any.
std::unique_ptr<Device> make_noisy_update(std::unique_ptr<Device> inner, GradientNoise noise,
                                          std::uint64_t seed,
                                          std::function<const TrainState*()> state);

}  // namespace tandem::verify
