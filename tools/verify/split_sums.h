// One rank that rounds where a tensor-parallel layout rounds: sums over a dimension that the layout
// cuts are made in tp parts, each rounded to the storage type, and then added. Without it a
// one-rank run in bf16 has fewer roundings than the layout, and says too little about what rounding
// does where a value may fall on either side of a kink (relu, AdamW's first step).
#pragma once

#include <functional>
#include <memory>

#include "core/device.h"
#include "train/state.h"

namespace tandem::verify {

/// With tp 1 nothing is split. `state` is asked at each kernel whose weight a tensor belongs to;
/// nullptr before there is one.
std::unique_ptr<Device> make_split_sums(Device& inner, int tp,
                                        std::function<const TrainState*()> state);

}  // namespace tandem::verify
