#include "tools/bench/fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "core/error.h"

namespace tandem {

namespace {

using Row = std::vector<double>;

double dot(const Row& a, const Row& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

/// Makes sum(weight * (row * found - 1)^2) least by coordinate descent from `found`: each
/// coefficient in turn takes its best value >= 0.
void least_squares(const std::vector<Row>& rows, const Row& weights, Row& found) {
  const std::size_t terms = found.size();
  std::vector<Row> products(terms, Row(terms, 0.0));
  Row sums(terms, 0.0);
  for (std::size_t s = 0; s < rows.size(); ++s) {
    for (std::size_t i = 0; i < terms; ++i) {
      sums[i] += weights[s] * rows[s][i];
      for (std::size_t j = 0; j < terms; ++j) {
        products[i][j] += weights[s] * rows[s][i] * rows[s][j];
      }
    }
  }
  constexpr int kRounds = 500;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < terms; ++i) {
      if (products[i][i] > 0.0) {
        const double others = dot(products[i], found) - products[i][i] * found[i];
        found[i] = std::max(0.0, (sums[i] - others) / products[i][i]);
      }
    }
  }
}

}  // namespace

std::vector<double> fit_costs(const std::vector<FitSample>& samples) {
  ensure(!samples.empty(), "a fit has samples");
  const std::size_t terms = samples.front().terms.size();
  // Relative to the sample's time and to the term's largest share of one, so that all are near 1.
  Row scale(terms, 0.0);
  for (const FitSample& sample : samples) {
    for (std::size_t i = 0; i < terms; ++i) {
      scale[i] = std::max(scale[i], sample.terms[i] / sample.seconds);
    }
  }
  std::vector<Row> rows;
  for (const FitSample& sample : samples) {
    Row& row = rows.emplace_back(terms, 0.0);
    for (std::size_t i = 0; i < terms; ++i) {
      row[i] = scale[i] > 0.0 ? sample.terms[i] / sample.seconds / scale[i] : 0.0;
    }
  }
  // Least absolute errors by least squares that are weighted with the last errors' inverses.
  constexpr int kRounds = 50;
  constexpr double kSmallError = 1e-4;
  Row found(terms, 0.0);
  Row weights(samples.size(), 1.0);
  for (int round = 0; round < kRounds; ++round) {
    least_squares(rows, weights, found);
    for (std::size_t s = 0; s < rows.size(); ++s) {
      weights[s] = 1.0 / std::max(kSmallError, std::abs(dot(rows[s], found) - 1.0));
    }
  }
  for (std::size_t i = 0; i < terms; ++i) {
    found[i] = scale[i] > 0.0 ? found[i] / scale[i] : 0.0;
  }
  return found;
}

RangeCosts fit_ranges(const std::vector<RangeSample>& samples, double RangeSample::*seconds,
                      const MatmulRates& matmuls) {
  std::map<std::string, std::vector<FitSample>> others;
  std::map<std::string, std::size_t> matmul_ranges;  // and the term of what is beside
  for (const RangeSample& sample : samples) {
    const RangeWork& work = sample.work;
    const std::string range(work.name());
    if (work.matmul) {
      matmul_ranges.emplace(range, kMatmulKinds + matmul_ranges.size());
    } else {
      others[range].push_back({{1.0, work.bytes}, sample.*seconds});
    }
  }
  RangeCosts costs;
  for (const auto& [range, of_range] : others) {
    const std::vector<double> found = fit_costs(of_range);
    costs[range] = {.fixed = found[0], .per_byte = found[1]};
  }
  std::vector<FitSample> products;
  for (const RangeSample& sample : samples) {
    const RangeWork& work = sample.work;
    if (work.matmul) {
      FitSample equation = {std::vector<double>(kMatmulKinds + matmul_ranges.size(), 0.0),
                            sample.*seconds};
      equation.terms[static_cast<std::size_t>(work.matmul->kind)] = matmuls.seconds(*work.matmul);
      equation.terms[matmul_ranges.at(std::string(work.name()))] = work.beside_bytes;
      products.push_back(std::move(equation));
    }
  }
  const std::vector<double> found = fit_costs(products);
  for (const RangeSample& sample : samples) {
    const RangeWork& work = sample.work;
    if (work.matmul) {
      const std::string range(work.name());
      costs[range] = {.per_byte = found[matmul_ranges.at(range)],
                      .matmul = found[static_cast<std::size_t>(work.matmul->kind)]};
    }
  }
  return costs;
}

FittedCollectives fit_collectives(const std::vector<CollectiveSample>& samples) {
  std::map<Collective, std::size_t> first_term;  // latency, then seconds per byte
  for (const CollectiveSample& sample : samples) {
    first_term.emplace(sample.op, 1 + 2 * first_term.size());
  }
  std::vector<FitSample> equations;
  for (const CollectiveSample& sample : samples) {
    FitSample& equation = equations.emplace_back();
    equation.terms.assign(1 + 2 * first_term.size(), 0.0);
    const std::size_t own = first_term.at(sample.op);
    equation.terms[0] = sample.since;
    equation.terms[own] = 1.0;
    equation.terms[own + 1] = sent_bytes(sample.op, sample.bytes, sample.ranks);
    equation.seconds = sample.seconds;
  }
  const std::vector<double> found = fit_costs(equations);
  FittedCollectives result;
  for (const auto& [op, term] : first_term) {
    result.links[op] = {found[term], 1.0 / std::max(found[term + 1], 1e-15)};
  }
  double waited = 0.0, since = 0.0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto calls = static_cast<double>(samples[i].calls);
    const double without = dot(equations[i].terms, found) - equations[i].terms[0] * found[0];
    waited += calls * (samples[i].seconds - without);
    since += calls * samples[i].since;
  }
  result.waits = since > 0.0 ? std::max(0.0, waited / since) : 0.0;
  return result;
}

}  // namespace tandem
