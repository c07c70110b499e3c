#include "parallel/parameter_store.h"

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

Tensor part(const Tensor& tensor, std::int64_t start, std::int64_t stop) {
  return tensor.absent() ? tensor : tensor.slice(0, start, stop - start);
}

}  // namespace

/// Where everything lies in the flat buffers, the same on every data rank.
struct ParameterStore::Plan {
  /// Parameters that share buckets, in elements [start, stop).
  struct Segment {
    std::string name;
    std::vector<Parameter*> parameters;
    std::int64_t start = 0, stop = 0;
  };

  std::vector<Segment> segments;
  std::int64_t alignment = 1;       ///< of the ends of segments and buckets
  std::int64_t matrices_end = 0;    ///< and vectors follow,
  std::int64_t replicated_end = 0;  ///< of which those that are cut follow
  std::int64_t total = 0;
};

/// The flat buffers, and which of their elements are this rank's to update.
class ParameterStore::Buffers {
 public:
  /// `shards`: data ranks that share masters and optimizer state.
  Buffers(Arena& arena, const Precision& precision, const StoreOptions& options, int shards,
          std::int64_t total) {
    const auto state = [&](const char* name) {
      return arena.allocate(MemoryCategory::kOptimizer, name, precision.main, {total / shards});
    };
    weight_ = arena.allocate(MemoryCategory::kWeights, "weights", precision.storage, {total});
    if (precision.storage != precision.main) {
      master_ = state("masters");
    }
    main_grad_ =
        arena.allocate(MemoryCategory::kMainGrads, "main gradients", precision.main, {total});
    if (options.moments > 0) {
      exp_avg_ = state("first moments");
    }
    if (options.moments > 1) {
      exp_avg_sq_ = state("second moments");
    }
    if (options.wire) {
      wire_ = arena.allocate(MemoryCategory::kCommunication, "gradients on the wire", *options.wire,
                             {total});
    }
  }

  /// Adds elements [start, stop) to those that this rank updates; in order, without overlap.
  void own(std::int64_t start, std::int64_t stop) {
    if (!own_.empty() && own_.back().stop == start) {
      own_.back().stop = stop;  // without ZeRO all is one range
    } else {
      own_.push_back({start, stop, own_.empty() ? 0 : own_.back().state + own_.back().length()});
    }
  }

  const Tensor& weight() const { return weight_; }
  const Tensor& main_grad() const { return main_grad_; }
  const Tensor& wire() const { return wire_; }

  /// Calls `visit(start, range)` for what this rank updates of elements [start, stop).
  template <typename Visit>
  void for_each_owned(std::int64_t start, std::int64_t stop, const Visit& visit) const {
    for (const Own& own : own_) {
      const std::int64_t from = std::max(start, own.start);
      const std::int64_t to = std::min(stop, own.stop);
      if (from < to) {
        const std::int64_t at = own.state + from - own.start;
        const auto state = [&](const Tensor& t) { return part(t, at, at + to - from); };
        const Tensor weight = part(weight_, from, to);
        visit(from, ParameterRange{.weight = weight,
                                   .master = master_.absent() ? weight : state(master_),
                                   .main_grad = part(main_grad_, from, to),
                                   .exp_avg = state(exp_avg_),
                                   .exp_avg_sq = state(exp_avg_sq_)});
      }
    }
  }

 private:
  struct Own {
    std::int64_t start, stop;
    std::int64_t state;  ///< where its masters and moments begin in their buffers

    std::int64_t length() const { return stop - start; }
  };

  Tensor weight_, master_, main_grad_, exp_avg_, exp_avg_sq_, wire_;
  std::vector<Own> own_;
};

Parameter& ParameterStore::add(ParameterSpec spec) {
  ensure(!allocated_, "a parameter is added after the buffers were laid out");
  return parameters_.emplace_back(std::move(spec), layout_,
                                  static_cast<std::uint32_t>(parameters_.size()));
}

ParameterStore::Plan ParameterStore::plan() {
  Plan plan;
  // Under ZeRO every bucket divides into equal parts that start aligned.
  plan.alignment = options_.sharded ? kPlacement * layout_.dp : kPlacement;
  for (auto p = parameters_.rbegin(); p != parameters_.rend(); ++p) {
    if (p->is_matrix()) {
      if (plan.segments.empty() || plan.segments.back().name != p->spec().block) {
        plan.segments.push_back({.name = p->spec().block});
      }
      plan.segments.back().parameters.push_back(&*p);
    }
  }
  Plan::Segment vectors{.name = "vectors"};
  for (const bool cut : {false, true}) {
    for (Parameter& parameter : parameters_) {
      if (!parameter.is_matrix() && parameter.is_cut() == cut) {
        vectors.parameters.push_back(&parameter);
      }
    }
  }
  if (!vectors.parameters.empty()) {
    plan.segments.push_back(std::move(vectors));
  }
  for (Plan::Segment& segment : plan.segments) {
    segment.start = plan.total;
    for (Parameter* parameter : segment.parameters) {
      parameter->flat_offset_ = plan.total;
      plan.total += round_up(parameter->local_shape().numel(), kPlacement);
      if (!parameter->is_matrix() && !parameter->is_cut()) {
        plan.replicated_end = plan.total;
      }
    }
    plan.total = round_up(plan.total, plan.alignment);
    segment.stop = plan.total;
    if (segment.parameters.front()->is_matrix()) {
      plan.matrices_end = plan.replicated_end = plan.total;
    }
  }
  return plan;
}

void ParameterStore::allocate(Arena& arena, const Precision& precision,
                              const StoreOptions& options) {
  ensure(!allocated_, "the parameters are allocated twice");
  allocated_ = true;
  options_ = options;
  const Plan plan = this->plan();
  Buffers buffers(arena, precision, options, options.sharded ? layout_.dp : 1, plan.total);
  make_buckets(plan, buffers);

  const auto own = [&](std::int64_t start, std::int64_t stop, bool matrices, bool replicated) {
    buffers.for_each_owned(start, stop, [&](std::int64_t, const ParameterRange& range) {
      owned_.push_back({range, matrices, replicated});
    });
  };
  own(0, plan.matrices_end, true, false);
  own(plan.matrices_end, plan.replicated_end, false, true);
  own(plan.replicated_end, plan.total, false, false);
  for (Parameter& parameter : parameters_) {
    const Shape& shape = parameter.local_shape();
    const std::int64_t start = parameter.flat_offset_;
    const std::int64_t stop = start + shape.numel();
    parameter.weight = buffers.weight().slice(0, start, stop - start).reshape(shape);
    parameter.main_grad = buffers.main_grad().slice(0, start, stop - start).reshape(shape);
    buffers.for_each_owned(start, stop, [&](std::int64_t at, const ParameterRange& range) {
      parameter.shards.push_back({.start = at - start,
                                  .master = range.master,
                                  .exp_avg = range.exp_avg,
                                  .exp_avg_sq = range.exp_avg_sq});
    });
  }
}

void ParameterStore::make_buckets(const Plan& plan, Buffers& buffers) {
  const std::int64_t largest = round_up(options_.bucket_elements, plan.alignment);
  for (const Plan::Segment& segment : plan.segments) {
    const std::int64_t count = (segment.stop - segment.start + largest - 1) / largest;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t start = segment.start + i * largest;
      const std::int64_t stop = std::min(start + largest, segment.stop);
      const std::int64_t length = options_.sharded ? (stop - start) / layout_.dp : stop - start;
      const std::int64_t own = options_.sharded ? start + length * layout_.dp_rank() : start;
      buffers.own(own, own + length);
      GradientBucket bucket{.name = count == 1 ? segment.name
                                               : segment.name + " (" + std::to_string(i + 1) +
                                                     " of " + std::to_string(count) + ")",
                            .main_grad = part(buffers.main_grad(), start, stop),
                            .weight = part(buffers.weight(), start, stop),
                            .own_main_grad = part(buffers.main_grad(), own, own + length),
                            .own_weight = part(buffers.weight(), own, own + length),
                            .wire = part(buffers.wire(), start, stop),
                            .own_wire = part(buffers.wire(), own, own + length)};
      for (Parameter* parameter : segment.parameters) {
        const std::int64_t from = parameter->flat_offset_;
        if (from < stop && from + parameter->local_shape().numel() > start) {
          parameter->first_bucket_ = from >= start ? buckets_.size() : parameter->first_bucket_;
          parameter->last_bucket_ = buckets_.size();
          bucket.parameters.push_back(parameter);
        }
      }
      buckets_.push_back(std::move(bucket));
    }
  }
}

void ParameterStore::initialize(Device& device, Stream& stream, std::uint64_t seed, int threads) {
  std::vector<float> host;
  for (Parameter& parameter : parameters_) {
    const ParameterSpec& spec = parameter.spec();
    const std::int64_t count = parameter.local_shape().numel();
    for (std::int64_t start = 0; start < count; start += kHostPiece) {
      const std::int64_t stop = std::min(start + kHostPiece, count);
      host.assign(static_cast<std::size_t>(stop - start), 0.0f);
      parameter.for_each_run_in(
          start, stop, [&](std::int64_t local, std::int64_t global, std::int64_t length) {
            float* const values = host.data() + (local - start);
            if (spec.init_std == 0.0) {
              std::fill_n(values, length, static_cast<float>(spec.init_value));
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
                  values[at] = static_cast<float>(spec.init_std * z[static_cast<std::size_t>(i)]);
                }
              }
            }
          });
      set_master(device, stream, parameter, std::span<const float>(host), start);
    }
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

namespace {

/// Elements from `start` on. Waits for the stream: the host's memory is the caller's, or goes.
template <typename From>
void to_device(Device& device, Stream& stream, const Tensor& tensor, std::int64_t start,
               std::span<const From> values) {
  const std::int64_t count = std::ssize(values);
  ensure(start >= 0 && start + count <= tensor.numel(), "values for a tensor of another size");
  std::vector<std::byte> memory(static_cast<std::size_t>(std::min(count, kHostPiece)) *
                                size_of(tensor.dtype));
  for (std::int64_t done = 0; done < count; done += kHostPiece) {
    const std::int64_t length = std::min(kHostPiece, count - done);
    const Tensor host(memory.data(), tensor.dtype, {length});
    visit_floating(tensor.dtype, [&](auto type) {
      std::transform(values.begin() + done, values.begin() + done + length,
                     host.as<decltype(type)>(),
                     [](From value) { return static_cast<decltype(type)>(value); });
    });
    device.copy(stream, host, tensor.flat().slice(0, start + done, length));
    stream.synchronize();
  }
}

template <typename From>
void to_master(Device& device, Stream& stream, const Parameter& parameter, std::int64_t start,
               std::span<const From> values) {
  to_device(device, stream, parameter.weight, start, values);
  const std::int64_t stop = start + std::ssize(values);
  for (const ParameterShard& shard : parameter.shards) {
    const std::int64_t first = std::max(start, shard.start), last = std::min(stop, shard.stop());
    // A master of the weight's type is a part of the weight.
    if (shard.master.dtype != parameter.weight.dtype && first < last) {
      to_device(device, stream, shard.master, first - shard.start,
                values.subspan(static_cast<std::size_t>(first - start),
                               static_cast<std::size_t>(last - first)));
    }
  }
}

}  // namespace

void set_master(Device& device, Stream& stream, const Parameter& parameter,
                std::span<const float> values, std::int64_t start) {
  to_master(device, stream, parameter, start, values);
}

void set_master(Device& device, Stream& stream, const Parameter& parameter,
                std::span<const double> values, std::int64_t start) {
  if (parameter.weight.dtype == DType::kF64) {
    to_master(device, stream, parameter, start, values);
    return;
  }
  // Masters are floats, and a weight is rounded from its master.
  const std::vector<float> narrow(values.begin(), values.end());
  to_master(device, stream, parameter, start, std::span<const float>(narrow));
}

void set_tensor(Device& device, Stream& stream, const Tensor& tensor,
                std::span<const double> values, std::int64_t start) {
  to_device(device, stream, tensor, start, values);
}

}  // namespace tandem
