#include "parallel/parameter.h"

#include <algorithm>

#include "core/error.h"

namespace tandem {

Parameter::Parameter(ParameterSpec spec, const Layout& layout, std::uint32_t index)
    : spec_(std::move(spec)), index_(index), local_shape_(spec_.shape) {
  if (!is_cut()) {
    return;
  }
  const std::int64_t size = spec_.shape[spec_.cut_dimension];
  ensure(size % spec_.parts == 0, "a fused parameter's parts differ in size");
  const std::int64_t part_size = size / spec_.parts;
  const std::int64_t local = (part_size + layout.tp - 1) / layout.tp;
  local_shape_[spec_.cut_dimension] = local * spec_.parts;
  cut_start_ = local * layout.tp_rank();
  cut_valid_ = std::clamp<std::int64_t>(part_size - cut_start_, 0, local);
}

void Parameter::for_each_run(
    const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) const {
  if (!is_cut()) {
    visit(0, 0, spec_.shape.numel());
    return;
  }
  const int d = spec_.cut_dimension;
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (int i = 0; i < d; ++i) {
    outer *= spec_.shape[i];
  }
  for (int i = d + 1; i < spec_.shape.rank(); ++i) {
    inner *= spec_.shape[i];
  }
  const std::int64_t part_size = spec_.shape[d] / spec_.parts;
  const std::int64_t local = local_shape_[d] / spec_.parts;
  if (cut_valid_ == 0) {
    return;
  }
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t p = 0; p < spec_.parts; ++p) {
      visit((o * local_shape_[d] + p * local) * inner,
            (o * spec_.shape[d] + p * part_size + cut_start_) * inner, cut_valid_ * inner);
    }
  }
}

void Parameter::for_each_run_in(
    std::int64_t start, std::int64_t stop,
    const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) const {
  for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
    const std::int64_t from = std::max(local, start);
    const std::int64_t to = std::min(local + length, stop);
    if (from < to) {
      visit(from, global + from - local, to - from);
    }
  });
}

}  // namespace tandem
