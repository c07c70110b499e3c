#include "tools/verify/proof.h"

#include "tools/verify/diagnosis.h"
#include "tools/verify/real.h"

namespace tandem::verify {

namespace {

bool tell(World& world, const Config& config, bool pass) {
  const std::unique_ptr<Device> host = make_reference_device(1);
  const auto control = world.make_group(
      "verify verdict", Layout{config.parallel.tp, config.parallel.dp, 0}.world_group(), *host,
      nullptr, nullptr);
  std::int64_t verdict = pass ? 1 : 0;
  control->broadcast(Tensor(&verdict, DType::kI64, {1}), 0, {.label = "verify verdict"})
      .wait_host();
  return verdict == 1;
}

/// What the exact argument says is sharper, but it has weights of its own.
std::string explain(const Proof& proof, const Config& config) {
  const std::string real =
      diagnose(proof.real_rows, proof.real.layout, proof.real.reference, config);
  return real.starts_with("initial ") || all_pass(proof.exact_rows)
             ? real
             : diagnose(proof.exact_rows, proof.exact->layout, proof.exact->one_rank,
                        proof.exact->config);
}

}  // namespace

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
  if (world.rank() == 0) {
    proof.real_rows = compare_real(proof.real, proof.storage);
    proof.pass = all_pass(proof.exact_rows) && all_pass(proof.real_rows);
    proof.diagnosis = proof.pass ? "" : explain(proof, config);
  }
  proof.pass = tell(world, config, proof.pass);
  return proof;
}

}  // namespace tandem::verify
