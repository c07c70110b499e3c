#include "parallel/parameter.h"

#include <algorithm>
#include <numeric>

#include "core/philox.h"

namespace tandem {

namespace {

/// Elements to which each parameter's place is rounded up: 64 bytes in every storage type, so that
/// vector kernels and matmuls start aligned.
constexpr std::int64_t kPlacement = 32;

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

Tensor part(const Tensor& tensor, std::int64_t start, std::int64_t length) {
  return tensor.absent() ? tensor : tensor.slice(0, start, length);
}

}  // namespace

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

ParameterRange ParameterRange::slice(std::int64_t start, std::int64_t length) const {
  return {part(weight, start, length), part(master, start, length), part(main_grad, start, length),
          part(exp_avg, start, length), part(exp_avg_sq, start, length)};
}

Parameter& ParameterStore::add(ParameterSpec spec) {
  ensure(!allocated_, "a parameter is added after the buffers were laid out");
  return parameters_.emplace_back(std::move(spec), layout_,
                                  static_cast<std::uint32_t>(parameters_.size()));
}

void ParameterStore::place(std::span<Parameter* const> order, std::int64_t& offset) {
  for (Parameter* parameter : order) {
    parameter->flat_offset_ = offset;
    offset += round_up(parameter->local_shape().numel(), kPlacement);
  }
}

void ParameterStore::allocate(Arena& arena, const Precision& precision, int moments) {
  ensure(!allocated_, "the parameters are allocated twice");
  allocated_ = true;
  std::vector<Parameter*> matrices, replicated, cut;
  for (Parameter& parameter : parameters_) {
    (parameter.is_matrix() ? matrices
     : parameter.is_cut()  ? cut
                           : replicated)
        .push_back(&parameter);
  }
  std::reverse(matrices.begin(), matrices.end());
  std::int64_t offset = 0;
  place(matrices, offset);
  const std::int64_t matrices_end = offset;
  place(replicated, offset);
  const std::int64_t replicated_end = offset;
  place(cut, offset);
  const std::int64_t total = offset;

  ParameterRange all;
  const bool own_masters = precision.storage != precision.main;
  all.weight = arena.allocate(MemoryCategory::kWeights, "weights", precision.storage, {total});
  all.master = own_masters
                   ? arena.allocate(MemoryCategory::kOptimizer, "masters", precision.main, {total})
                   : all.weight;
  all.main_grad =
      arena.allocate(MemoryCategory::kMainGrads, "main gradients", precision.main, {total});
  if (moments > 0) {
    all.exp_avg =
        arena.allocate(MemoryCategory::kOptimizer, "first moments", precision.main, {total});
  }
  if (moments > 1) {
    all.exp_avg_sq =
        arena.allocate(MemoryCategory::kOptimizer, "second moments", precision.main, {total});
  }
  for (Parameter& parameter : parameters_) {
    const ParameterRange view = all.slice(parameter.flat_offset_, parameter.local_shape().numel());
    const auto shaped = [&](const Tensor& t) {
      return t.absent() ? t : t.reshape(parameter.local_shape());
    };
    parameter.weight = shaped(view.weight);
    parameter.master = shaped(view.master);
    parameter.main_grad = shaped(view.main_grad);
    parameter.exp_avg = shaped(view.exp_avg);
    parameter.exp_avg_sq = shaped(view.exp_avg_sq);
  }
  matrices_ = all.slice(0, matrices_end);
  vectors_ = all.slice(matrices_end, total - matrices_end);
  replicated_vectors_ = all.slice(matrices_end, replicated_end - matrices_end);
  cut_vectors_ = all.slice(replicated_end, total - replicated_end);

  for (std::size_t i = 0; i < matrices.size();) {
    const std::string& block = matrices[i]->spec().block;
    GradientBucket bucket{block, {}, {}};
    const std::int64_t start = matrices[i]->flat_offset_;
    for (; i < matrices.size() && matrices[i]->spec().block == block; ++i) {
      bucket.parameters.push_back(matrices[i]);
    }
    const std::int64_t end = i < matrices.size() ? matrices[i]->flat_offset_ : matrices_end;
    bucket.main_grad = all.main_grad.slice(0, start, end - start);
    buckets_.push_back(std::move(bucket));
  }
  if (total > matrices_end) {
    GradientBucket bucket{"vectors", vectors_.main_grad, {}};
    bucket.parameters.assign(replicated.begin(), replicated.end());
    bucket.parameters.insert(bucket.parameters.end(), cut.begin(), cut.end());
    buckets_.push_back(std::move(bucket));
  }
}

void ParameterStore::initialize(Device& device, Stream& stream, std::uint64_t seed, int threads) {
  std::vector<float> host;
  std::vector<double> wide;
  for (Parameter& parameter : parameters_) {
    const ParameterSpec& spec = parameter.spec();
    host.assign(static_cast<std::size_t>(parameter.local_shape().numel()), 0.0f);
    parameter.for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
      if (spec.init_std == 0.0) {
        std::fill_n(host.begin() + local, length, static_cast<float>(spec.init_value));
        return;
      }
      const std::int64_t first_block = global / 4;
      const std::int64_t last_block = (global + length - 1) / 4;
#pragma omp parallel for num_threads(threads) if (threads > 1 && length > 4096)
      for (std::int64_t block = first_block; block <= last_block; ++block) {
        const auto z = philox_normals(seed, RandomUse::kWeights, parameter.index_,
                                      static_cast<std::uint64_t>(block));
        for (std::int64_t i = 0; i < 4; ++i) {
          const std::int64_t at = block * 4 + i - global;
          if (at >= 0 && at < length) {
            host[static_cast<std::size_t>(local + at)] =
                static_cast<float>(spec.init_std * z[static_cast<std::size_t>(i)]);
          }
        }
      }
    });
    const Shape& shape = parameter.local_shape();
    if (parameter.master.dtype == DType::kF32) {
      device.copy(stream, Tensor(host.data(), DType::kF32, shape), parameter.master);
    } else {
      wide.assign(host.begin(), host.end());
      device.copy(stream, Tensor(wide.data(), DType::kF64, shape), parameter.master);
    }
    if (parameter.weight.dtype != parameter.master.dtype) {
      device.cast(stream, parameter.master, parameter.weight);
    }
    stream.synchronize();  // the host buffers are reused
  }
}

const Parameter& ParameterStore::find(const std::string& name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter& p) { return p.name() == name; });
  ensure(found != parameters_.end(), "no parameter of that name");
  return *found;
}

std::int64_t ParameterStore::global_count() const {
  return std::accumulate(
      parameters_.begin(), parameters_.end(), std::int64_t{0},
      [](std::int64_t n, const Parameter& p) { return n + p.spec().shape.numel(); });
}

}  // namespace tandem
