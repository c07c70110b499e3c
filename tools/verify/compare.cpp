#include "tools/verify/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tandem::verify {

namespace {

/// Distance between 1 and the next number of the type.
double unit_in_last_place(DType type) {
  switch (type) {
    case DType::kBF16:
      return 0x1p-7;
    case DType::kF16:
      return 0x1p-10;
    case DType::kF32:
      return 0x1p-23;
    default:
      return 0x1p-52;
  }
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) {
           // Zeros of either sign are one value: which one a sum of nothing has is no fault.
           return x == y || std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
         });
}

Row exact_row(const char* argument, int step, const std::string& tensor,
              const std::vector<double>& layout, const std::vector<double>& one_rank) {
  const bool pass = same_bits(layout, one_rank);
  const double error = pass ? 0.0 : relative_error(layout, one_rank);
  return {argument, step, tensor, error, 0.0, pass ? 0.0 : std::numeric_limits<double>::max(),
          pass};
}

std::vector<double> at(const std::vector<double>& series, std::size_t i) { return {series[i]}; }

/// Rows of copies that differ between ranks; one row if there are none.
void add_copies(std::vector<Row>& rows, const char* argument, const Outcome& layout) {
  const int last = static_cast<int>(layout.losses.size());
  for (const std::string& name : layout.unequal_copies) {
    rows.push_back(
        {argument, last, "copies of " + name, 1.0, 0.0, std::numeric_limits<double>::max(), false});
  }
  if (layout.unequal_copies.empty()) {
    rows.push_back({argument, last, "copies of weights on all ranks", 0.0, 0.0, 0.0, true});
  }
}

}  // namespace

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  const double error = norm > 0.0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

void visit_values(const Outcome& a, const Outcome& b, const ValueVisitor& visit) {
  const auto steps = static_cast<int>(a.losses.size());
  for (const ParameterSpec& parameter : a.parameters) {
    const std::string& name = parameter.name;
    visit(1, "gradient " + name, a.gradients.at(name), b.gradients.at(name), false);
    visit(steps, "weight " + name, a.weights.at(name), b.weights.at(name), false);
  }
  for (int step = 1; step <= steps; ++step) {
    const auto i = static_cast<std::size_t>(step - 1);
    visit(step, "loss", at(a.losses, i), at(b.losses, i), false);
    visit(step, "gradient norm", at(a.grad_norms, i), at(b.grad_norms, i), false);
  }
  for (const std::string& name : a.activation_order) {
    visit(1, name, a.activations.at(name), b.activations.at(name), true);
  }
  for (const ParameterSpec& parameter : a.parameters) {
    const std::string& name = parameter.name;
    visit(1, "local gradient " + name, a.local_gradients.at(name), b.local_gradients.at(name),
          true);
    if (steps > 1) {
      visit(1, "first weight " + name, a.first_weights.at(name), b.first_weights.at(name), true);
    }
  }
}

Errors errors_against(const Outcome& run, const Outcome& reference) {
  Errors errors;
  visit_values(run, reference, [&](int, const std::string&, const auto& a, const auto& b, bool) {
    errors.push_back(relative_error(a, b));
  });
  return errors;
}

namespace {

/// Rows of errors in the layout's place, held against what the variants allow.
std::vector<Row> judge(const RealRuns& runs, const Errors& errors, DType storage) {
  std::vector<Row> rows;
  visit_values(
      runs.reference, runs.reference,
      [&](int step, const std::string& tensor, const auto&, const auto&, bool evidence) {
        const std::size_t i = rows.size();
        double squares = 0.0;
        for (const Errors& variant : runs.variants) {
          squares += variant.at(i) * variant.at(i);
        }
        Row row{.argument = "real", .step = step, .tensor = tensor, .error_layout = errors.at(i)};
        row.error_one_rank = std::sqrt(squares / static_cast<double>(runs.variants.size()));
        row.budget_used = row.error_layout / budget_of(row, storage);
        if (!std::isfinite(row.error_one_rank)) {  // a budget without an end proves nothing
          row.budget_used = std::numeric_limits<double>::max();
        }
        row.pass = row.budget_used <= 1.0;
        row.evidence = evidence;
        rows.push_back(row);
      });
  return rows;
}

}  // namespace

std::vector<Row> compare_real(const RealRuns& runs, DType storage) {
  std::vector<Row> rows = judge(runs, errors_against(runs.layout, runs.reference), storage);
  for (Row& row : rows) {
    if (row.evidence && runs.layout.unequal_activations.count(row.tensor) > 0) {
      row.pass = false;
    }
  }
  for (const ParameterSpec& parameter : runs.layout.parameters) {
    rows.push_back(exact_row("real", 0, "initial " + parameter.name,
                             runs.layout.initial.at(parameter.name),
                             runs.reference.initial.at(parameter.name)));
  }
  for (const std::string& name : runs.layout.unequal_initial) {
    rows.push_back({"real", 0, "initial copies of " + name, 1.0, 0.0,
                    std::numeric_limits<double>::max(), false});
  }
  rows.push_back(
      exact_row("real", 1, "rows of the step", runs.layout.row_keys, runs.reference.row_keys));
  rows.push_back(exact_row("real", 1, "token counts", runs.layout.tokens, runs.reference.tokens));
  add_copies(rows, "real", runs.layout);
  return rows;
}

bool refused(const RealRuns& runs, const Errors& errors, DType storage) {
  return !all_pass(judge(runs, errors, storage));
}

std::vector<Row> compare_exact(const Outcome& layout, const Outcome& one_rank) {
  std::vector<Row> rows;
  visit_values(layout, one_rank,
               [&](int step, const std::string& tensor, const auto& a, const auto& b, bool) {
                 rows.push_back(exact_row("exact", step, tensor, a, b));
                 rows.back().pass =
                     rows.back().pass && layout.unequal_activations.count(tensor) == 0;
               });
  rows.push_back(exact_row("exact", 1, "rows of the step", layout.row_keys, one_rank.row_keys));
  rows.push_back(exact_row("exact", 1, "token counts", layout.tokens, one_rank.tokens));
  add_copies(rows, "exact", layout);
  return rows;
}

double budget_of(const Row& row, DType storage) {
  return 4.0 * row.error_one_rank + 2.0 * unit_in_last_place(storage);
}

bool all_pass(const std::vector<Row>& rows) {
  return std::all_of(rows.begin(), rows.end(),
                     [](const Row& row) { return row.pass || row.evidence; });
}

}  // namespace tandem::verify
