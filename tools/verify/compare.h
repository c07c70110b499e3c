// The verdict: one row per compared value, with its error under the layout, the budget that
// rounding gets, and the share of it that was used.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/verify/outcome.h"

namespace tandem::verify {

struct Row {
  std::string argument;  ///< "exact" or "real"
  int step = 1;
  std::string tensor;           ///< "gradient layers.0.fc1.weight", "loss", ...
  double error_layout = 0.0;    ///< relative 2-norm against the reference
  double error_one_rank = 0.0;  ///< root mean square over the one-rank variants
  double budget_used = 0.0;     ///< error_layout / budget; above 1 fails
  bool pass = true;
  /// Not part of the verdict: only says where a failed row comes from.
  bool evidence = false;
};

/// Relative 2-norms of one run against the reference, one for each value that the real argument
/// compares, in the order of visit_values().
using Errors = std::vector<double>;

/// What the real argument compares.
struct RealRuns {
  Outcome layout;
  Outcome reference;  ///< in double, from the same masters
  std::vector<Errors> variants;
  std::vector<Errors> row_faults;  ///< one-rank runs with a fault in the data; see faults.h
};

using ValueVisitor =
    std::function<void(int step, const std::string& tensor, const std::vector<double>& a,
                       const std::vector<double>& b, bool evidence)>;
/// Visits every value of two runs that rounding may change: gradients and weights by parameter,
/// loss and norm by step, then, as evidence, what passed between the operators of step 1.
void visit_values(const Outcome& a, const Outcome& b, const ValueVisitor& visit);
Errors errors_against(const Outcome& run, const Outcome& reference);

/// error(layout) <= 4 * e + 2 units in the last place of `storage`, where e is the root mean square
/// of the variants' errors; initial weights, rows of the step and copies bit by bit.
std::vector<Row> compare_real(const RealRuns& runs, DType storage);
/// Whether errors of another run in the layout's place would fail.
bool refused(const RealRuns& runs, const Errors& errors, DType storage);
/// What rounding may do to the value of a row.
double budget_of(const Row& row, DType storage);
/// Every value of the two runs bit by bit.
std::vector<Row> compare_exact(const Outcome& layout, const Outcome& one_rank);

/// Evidence aside.
bool all_pass(const std::vector<Row>& rows);

/// ||a - b|| / ||b||, or ||a - b|| where b is zero; infinity for anything not finite.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tandem::verify
