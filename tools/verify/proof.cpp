#include "tools/verify/proof.h"

#include <algorithm>

#include "tools/verify/diagnosis.h"
#include "tools/verify/real.h"

namespace tandem::verify {

namespace {

/// Rank 0 decides, all ranks know.
bool decided(Communicator& control, bool yes) {
  std::int64_t verdict = yes ? 1 : 0;
  control.broadcast(Tensor(&verdict, DType::kI64, {1}), 0, {.label = "verify verdict"}).wait_host();
  return verdict == 1;
}

/// How far beyond its budget rounding may take a row of a right layout by a rare chance.
constexpr double kNarrow = 8.0;

/// Whether rounding alone may have failed the real argument: what few runs met by chance, such as
/// an element whose gradient is next to nothing and whose first AdamW step goes either way, more
/// runs meet, and the budget grows by it. A fault stays one.
bool fails_narrowly(const std::vector<Row>& rows) {
  return !all_pass(rows) && std::all_of(rows.begin(), rows.end(), [](const Row& row) {
    return row.pass || row.evidence || row.budget_used < kNarrow;
  });
}

/// Whether something wrong was seen between two operators, not only in what comes out at the end.
bool seen_under_way(const std::vector<Row>& rows, const Outcome& layout) {
  return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
    return !row.pass && layout.activations.count(row.tensor) > 0;
  });
}

/// What the exact argument says is sharper, but it has weights and a loss of its own.
std::string explain(const Proof& proof, const Config& config) {
  const std::string real =
      diagnose(proof.real_rows, proof.real.layout, proof.real.reference, config);
  const auto failed = std::find_if(proof.exact.begin(), proof.exact.end(),
                                   [](const auto& argument) { return !all_pass(argument.rows); });
  return real.starts_with("initial ") || failed == proof.exact.end() ||
                 (seen_under_way(proof.real_rows, proof.real.layout) &&
                  !seen_under_way(failed->rows, failed->layout))
             ? real
             : diagnose(failed->rows, failed->layout, failed->one_rank, failed->config);
}

}  // namespace

bool Proof::exact_passes() const {
  return std::all_of(exact.begin(), exact.end(),
                     [](const ExactArgument& argument) { return all_pass(argument.rows); });
}

Proof prove(World& world, const Config& config, const RunPlan& plan, const Decorators& under_test) {
  Proof proof;
  const Precision precision = precision_of(config);
  // The coarsest type that a value is rounded to on its way.
  proof.storage = store_options(config, precision).wire.value_or(precision.storage);
  proof.exact = run_exact(world, config, under_test);
  RealArgument real(world, config, plan);
  real.run(under_test);
  const std::unique_ptr<Device> host = make_reference_device(1);
  const auto control = world.make_group(
      "verify verdict", Layout{config.parallel.tp, config.parallel.dp, 0}.world_group(), *host,
      nullptr, nullptr);
  const bool judges = world.rank() == 0;
  if (judges) {
    proof.real_rows = compare_real(real.runs(), proof.storage);
  }
  if (decided(*control, judges && proof.exact_passes() && fails_narrowly(proof.real_rows))) {
    real.look_again();
    if (judges) {
      proof.real_rows = compare_real(real.runs(), proof.storage);
    }
  }
  proof.pass = decided(*control, judges && proof.exact_passes() && all_pass(proof.real_rows));
  proof.real = std::move(real.runs());
  proof.diagnosis = judges && !proof.pass ? explain(proof, config) : "";
  return proof;
}

}  // namespace tandem::verify
