#include "train/plan/matmul_rates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/error.h"

namespace tandem {

namespace {

/// The point of half the size, which is a power of two where the size is; of the next above it,
/// where the half is no point. `point` is not the first.
std::size_t half_of(const std::vector<double>& lattice, std::size_t point) {
  const auto half = std::lower_bound(lattice.begin(), lattice.end(), lattice[point] / 2.0);
  return std::min(point - 1, static_cast<std::size_t>(half - lattice.begin()));
}

}  // namespace

MatmulRates::MatmulRates(std::vector<double> rows, std::vector<double> widths,
                         std::array<std::vector<double>, kMatmulKinds> gflops)
    : rows_(std::move(rows)), widths_(std::move(widths)) {
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    all_rows_.push_back(r);
  }
  for (std::size_t w = 0; w < widths_.size(); ++w) {
    all_widths_.push_back(w);
    if (!std::has_single_bit(static_cast<std::uint64_t>(widths_[w]))) {
      odd_widths_.push_back(w);
    }
  }
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
            rate = rates[at(longest == 0 ? half_of(rows_, r) : r,
                            longest == 1 ? half_of(widths_, o) : o,
                            longest == 2 ? half_of(widths_, i) : i)];
          }
          log_rate_[kind][at(r, o, i)] = std::log(rate * 1e9);
        }
      }
    }
  }
}

MatmulRates::Place MatmulRates::place(const std::vector<double>& lattice,
                                      const std::vector<std::size_t>& points, double size) {
  const auto next = std::upper_bound(points.begin(), points.end(), size,
                                     [&](double s, std::size_t p) { return s < lattice[p]; });
  if (next == points.begin()) {
    return {*next, *next, 0.0};
  }
  const std::size_t below = *(next - 1);
  if (next == points.end()) {
    return {below, below, 0.0};
  }
  return {below, *next,
          std::log(size / lattice[below]) / std::log(lattice[*next] / lattice[below])};
}

MatmulRates::Place MatmulRates::place_of_width(double size) const {
  const bool is_odd = !std::has_single_bit(static_cast<std::uint64_t>(size));
  const bool between = is_odd && !odd_widths_.empty() && size >= widths_[odd_widths_.front()];
  return place(widths_, between ? odd_widths_ : all_widths_, size);
}

double MatmulRates::seconds(const MatmulSize& size) const {
  if (size.flops() == 0.0) {
    return 0.0;
  }
  const Place row = place(rows_, all_rows_, size.rows);
  const Place out = place_of_width(size.out), in = place_of_width(size.in);
  const std::vector<double>& log_rates = log_rate_[static_cast<std::size_t>(size.kind)];
  double log_rate = 0.0;
  for (unsigned corner = 0; corner < 8; ++corner) {
    double share = 1.0;
    const auto index = [&](const Place& of, unsigned bit) {
      const bool above = (corner & bit) != 0;
      share *= above ? of.share : 1.0 - of.share;
      return above ? of.above : of.below;
    };
    const std::size_t point = at(index(row, 4), index(out, 2), index(in, 1));
    log_rate += share * log_rates[point];
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
