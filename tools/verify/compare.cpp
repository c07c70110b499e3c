#include "tools/verify/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

namespace tandem::verify {

namespace {

/// Distance between 1 and the next number of the type.
double unit_in_last_place(DType type) {
  switch (type) {
    case DType::kBF16:
      return 0x1p-7;
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

std::vector<Row> compare_real(const RealRuns& runs, DType storage) {
  std::vector<Row> rows;
  const auto add = [&](int step, const std::string& tensor,
                       const std::function<std::vector<double>(const Outcome&)>& value) {
    const std::vector<double> truth = value(runs.reference);
    double squares = 0.0;
    for (const Outcome& variant : runs.variants) {
      const double error = relative_error(value(variant), truth);
      squares += error * error;
    }
    Row row{.argument = "real", .step = step, .tensor = tensor};
    row.error_layout = relative_error(value(runs.layout), truth);
    row.error_one_rank = std::sqrt(squares / static_cast<double>(runs.variants.size()));
    row.budget_used = row.error_layout / budget_of(row, storage);
    row.pass = row.budget_used <= 1.0;
    rows.push_back(row);
  };
  const auto steps = static_cast<int>(runs.layout.losses.size());
  for (const ParameterSpec& parameter : runs.layout.parameters) {
    const std::string& name = parameter.name;
    rows.push_back(exact_row("real", 0, "initial " + name, runs.layout.initial.at(name),
                             runs.one_rank.initial.at(name)));
    add(1, "gradient " + name, [&](const Outcome& o) { return o.gradients.at(name); });
    add(steps, "weight " + name, [&](const Outcome& o) { return o.weights.at(name); });
  }
  for (int step = 1; step <= steps; ++step) {
    const auto i = static_cast<std::size_t>(step - 1);
    add(step, "loss", [&](const Outcome& o) { return at(o.losses, i); });
    add(step, "gradient norm", [&](const Outcome& o) { return at(o.grad_norms, i); });
  }
  add_copies(rows, "real", runs.layout);
  return rows;
}

std::vector<Row> compare_exact(const Outcome& layout, const Outcome& one_rank) {
  std::vector<Row> rows;
  const auto steps = static_cast<int>(layout.losses.size());
  for (const ParameterSpec& parameter : layout.parameters) {
    const std::string& name = parameter.name;
    rows.push_back(exact_row("exact", 1, "gradient " + name, layout.gradients.at(name),
                             one_rank.gradients.at(name)));
    rows.push_back(exact_row("exact", steps, "weight " + name, layout.weights.at(name),
                             one_rank.weights.at(name)));
  }
  for (int step = 1; step <= steps; ++step) {
    const auto i = static_cast<std::size_t>(step - 1);
    rows.push_back(exact_row("exact", step, "loss", at(layout.losses, i), at(one_rank.losses, i)));
    rows.push_back(exact_row("exact", step, "gradient norm", at(layout.grad_norms, i),
                             at(one_rank.grad_norms, i)));
  }
  add_copies(rows, "exact", layout);
  return rows;
}

double budget_of(const Row& row, DType storage) {
  return 4.0 * row.error_one_rank + 2.0 * unit_in_last_place(storage);
}

bool all_pass(const std::vector<Row>& rows) {
  return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.pass; });
}

}  // namespace tandem::verify
