// What cuBLAS makes of a matmul description, in plain loops over matrices that are counted by
// column: the other half of the check that descriptions say what was meant.
#pragma once

#include "core/cuda/matmul_plan.h"

namespace tandem::testing {

/// Sums in double and rounds once. Host memory.
void execute_column_major(const cuda::MatmulCall& call);

}  // namespace tandem::testing
