// A plan as a person reads it on a terminal, and as a program reads it in JSON.
#pragma once

#include <string>
#include <vector>

#include "train/plan/predict.h"

namespace tandem {

/// `most`: lines of layouts; 0 for all.
std::string plan_table(const std::vector<Prediction>& plan, const Hardware& hardware,
                       const SampledRows& sampled, std::size_t most);
/// Throws ConfigError if `file` cannot be written.
void write_plan(const std::vector<Prediction>& plan, const Hardware& hardware,
                const SampledRows& sampled, const std::string& file);

}  // namespace tandem
