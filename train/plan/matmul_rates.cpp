#include "train/plan/matmul_rates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace tandem {

MatmulRates::MatmulRates(std::vector<double> rows, std::vector<double> widths,
                         std::array<std::vector<double>, kMatmulKinds> gflops)
    : rows_(std::move(rows)), widths_(std::move(widths)) {
  for (std::size_t kind = 0; kind < kMatmulKinds; ++kind) {
    std::vector<double>& rates = gflops[kind];
    ensure(rates.size() == rows_.size() * widths_.size() * widths_.size() && rates.front() > 0.0,
           "a lattice of matmuls is whole, and begins with one that was measured");
    log_rate_[kind].resize(rates.size());
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      for (std::size_t o = 0; o < widths_.size(); ++o) {
        for (std::size_t i = 0; i < widths_.size(); ++i) {
          double& rate = rates[at(r, o, i)];
          if (rate == 0.0) {  // smaller ones are there by now
            const std::array sides = {r == 0 ? 0.0 : rows_[r], o == 0 ? 0.0 : widths_[o],
                                      i == 0 ? 0.0 : widths_[i]};
            const auto longest = std::max_element(sides.begin(), sides.end()) - sides.begin();
            rate = rates[at(longest == 0 ? r - 1 : r, longest == 1 ? o - 1 : o,
                            longest == 2 ? i - 1 : i)];
          }
          log_rate_[kind][at(r, o, i)] = std::log(rate * 1e9);
        }
      }
    }
  }
}

MatmulRates::Place MatmulRates::place(const std::vector<double>& lattice, double size) {
  const auto next = std::upper_bound(lattice.begin(), lattice.end(), size);
  if (next == lattice.begin()) {
    return {0, 0.0};
  }
  if (next == lattice.end()) {
    return {lattice.size() - 1, 0.0};
  }
  return {static_cast<std::size_t>(next - lattice.begin() - 1),
          std::log(size / *(next - 1)) / std::log(*next / *(next - 1))};
}

double MatmulRates::seconds(const MatmulSize& size) const {
  if (size.flops() == 0.0) {
    return 0.0;
  }
  const Place row = place(rows_, size.rows), out = place(widths_, size.out),
              in = place(widths_, size.in);
  double log_rate = 0.0;
  for (unsigned corner = 0; corner < 8; ++corner) {
    double share = 1.0;
    const auto index = [&](const Place& of, unsigned bit) {
      const bool above = (corner & bit) != 0;
      share *= above ? of.above : 1.0 - of.above;
      return of.below + (above && of.above > 0.0 ? 1 : 0);
    };
    const std::size_t point = at(index(row, 4), index(out, 2), index(in, 1));
    log_rate += share * log_rate_[static_cast<std::size_t>(size.kind)][point];
  }
  return size.flops() / std::exp(log_rate);
}

double MatmulRates::best() const {
  double best = 0.0;
  for (const std::vector<double>& rates : log_rate_) {
    best = std::max(best, rates.empty() ? 0.0 : *std::max_element(rates.begin(), rates.end()));
  }
  return std::exp(best);
}

}  // namespace tandem
