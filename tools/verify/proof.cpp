#include "tools/verify/proof.h"

#include "tools/verify/diagnosis.h"
#include "tools/verify/real.h"

namespace tandem::verify {

Proof prove(World& world, const Config& config, const RunPlan& plan, const Decorators& under_test) {
  Proof proof;
  proof.storage =
      precision_of(config, config.device == DeviceChoice::kReference ? DeviceKind::kReference
                                                                     : DeviceKind::kCpu)
          .storage;
  proof.exact = run_exact(world, config, under_test);
  if (proof.exact) {
    proof.exact_rows = compare_exact(proof.exact->layout, proof.exact->one_rank);
    if (!proof.exact->norm_is_exact) {
      std::erase_if(proof.exact_rows, [](const Row& row) { return row.tensor == "gradient norm"; });
    }
    if (all_pass(proof.exact_rows)) {  // nothing to explain: their memory is needed
      proof.exact->layout = {};
      proof.exact->one_rank = {};
    }
  }
  proof.real = run_real(world, config, plan, under_test);
  proof.real_rows = compare_real(proof.real, proof.storage);
  proof.pass = all_pass(proof.exact_rows) && all_pass(proof.real_rows);
  if (proof.pass) {
    return proof;
  }
  // What the exact argument says is sharper, but it has weights of its own.
  const std::string real =
      diagnose(proof.real_rows, proof.real.layout, proof.real.reference, config);
  if (!real.starts_with("initial ") && !all_pass(proof.exact_rows)) {
    proof.diagnosis =
        diagnose(proof.exact_rows, proof.exact->layout, proof.exact->one_rank, proof.exact->config);
  } else {
    proof.diagnosis = real;
  }
  return proof;
}

}  // namespace tandem::verify
