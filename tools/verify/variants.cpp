#include "tools/verify/variants.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/philox.h"
#include "tools/verify/split_sums.h"
#include "train/checkpoint/load.h"

namespace tandem::verify {

namespace {

/// Copies of micro-batches whose rows are moved.
class PermutedSource final : public DataSource {
 public:
  PermutedSource(std::unique_ptr<DataSource> source, std::uint64_t seed)
      : source_(std::move(source)), seed_(seed) {}

  std::span<const MicroBatch> fetch_step(std::int64_t consumed_samples) override {
    const auto batches = source_->fetch_step(consumed_samples);
    moved_.assign(batches.begin(), batches.end());
    memory_.clear();
    for (MicroBatch& batch : moved_) {
      const auto order = draw_permutation(batch.tokens, seed_++);
      for (Tensor MicroBatch::*field :
           {&MicroBatch::ids, &MicroBatch::targets, &MicroBatch::row_keys, &MicroBatch::input,
            &MicroBatch::expected}) {
        move_rows(batch.*field, order);
      }
    }
    return moved_;
  }
  std::int64_t evaluation_batches() const override { return source_->evaluation_batches(); }
  const MicroBatch& fetch_evaluation(std::int64_t index) override {
    return source_->fetch_evaluation(index);
  }
  std::string describe() const override { return source_->describe(); }

 private:
  void move_rows(Tensor& tensor, const std::vector<std::int64_t>& order) {
    if (tensor.absent() || tensor.dim(0) == 0) {
      return;
    }
    const std::size_t row = tensor.bytes() / static_cast<std::size_t>(tensor.dim(0));
    auto& memory = memory_.emplace_back(tensor.data, tensor.data + tensor.bytes());
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::memcpy(memory.data() + i * row, tensor.data + static_cast<std::size_t>(order[i]) * row,
                  row);
    }
    tensor = Tensor(memory.data(), tensor.dtype, tensor.shape);
  }

  std::unique_ptr<DataSource> source_;
  std::uint64_t seed_;
  std::vector<MicroBatch> moved_;
  std::vector<std::vector<std::byte>> memory_;
};

enum class Direction { kPermute, kRestore };

/// Moves elements of [rows, columns] so that row i of the result is row order[i] of the input, in
/// each of `parts` (or back).
void move_rows(std::vector<double>& values, std::int64_t columns, std::int64_t parts,
               const std::vector<std::int64_t>& order, Direction direction) {
  const std::vector<double> before = values;
  const std::int64_t rows = std::ssize(order);
  for (std::int64_t p = 0; p < parts; ++p) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t from = (p * rows + order[static_cast<std::size_t>(i)]) * columns;
      const std::int64_t to = (p * rows + i) * columns;
      const auto [read, write] =
          direction == Direction::kPermute ? std::pair(from, to) : std::pair(to, from);
      std::copy_n(before.begin() + read, columns, values.begin() + write);
    }
  }
}

void move_columns(std::vector<double>& values, const std::vector<std::int64_t>& order,
                  Direction direction) {
  const auto columns = order.size();
  for (std::size_t row = 0; row * columns < values.size(); ++row) {
    std::vector<double> line(values.begin() + static_cast<std::ptrdiff_t>(row * columns),
                             values.begin() + static_cast<std::ptrdiff_t>((row + 1) * columns));
    move_rows(line, 1, 1, order, direction);
    std::copy(line.begin(), line.end(),
              values.begin() + static_cast<std::ptrdiff_t>(row * columns));
  }
}

/// The dimensions that a permutation of units needs to know.
struct UnitShape {
  std::int64_t hidden, ffn, parts;
};

UnitShape unit_shape(const Config& config) {
  return {config.model.hidden, config.model.ffn,
          config.model.activation == Activation::kSwiglu ? 2 : 1};
}

/// What a permutation of units does to the parameter of this name: nothing to most.
void move_units(const std::string& name, std::vector<double>& values, const UnitShape& shape,
                const std::vector<std::int64_t>& order, Direction direction) {
  if (name.ends_with(".fc1.weight")) {
    move_rows(values, shape.hidden, shape.parts, order, direction);
  } else if (name.ends_with(".fc1.bias")) {
    move_rows(values, 1, shape.parts, order, direction);
  } else if (name.ends_with(".fc2.weight")) {
    move_columns(values, order, direction);
  }
}

void restore(WholeTensors& tensors, const UnitShape& shape,
             const std::vector<std::int64_t>& order) {
  for (auto& [name, values] : tensors) {
    // Activations have a column per unit, in each fused part.
    if (name.ends_with(" fc1 output") || name.ends_with(" fc1 d_output") ||
        name.ends_with("activated")) {
      move_columns(values, order, Direction::kRestore);
    }
    move_units(name, values, shape, order, Direction::kRestore);
  }
}

}  // namespace

std::vector<std::int64_t> draw_permutation(std::int64_t n, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = n - 1; i > 0; --i) {  // Fisher-Yates
    const PhiloxBlock draw = philox_draw(seed, RandomUse::kOrder, 1, static_cast<std::uint64_t>(i));
    const std::uint64_t wide = static_cast<std::uint64_t>(draw.x[0]) << 32 | draw.x[1];
    std::swap(order[static_cast<std::size_t>(i)],
              order[static_cast<std::size_t>(wide % static_cast<std::uint64_t>(i + 1))]);
  }
  return order;
}

std::unique_ptr<DataSource> permute_rows(std::unique_ptr<DataSource> source, std::uint64_t seed) {
  return std::make_unique<PermutedSource>(std::move(source), seed);
}

Outcome run_variant(const Config& config, int index, const RunPlan& plan,
                    const GradientNoise& noise) {
  const auto seed = static_cast<std::uint64_t>(index) + 1;
  const std::vector<std::int64_t> order = draw_permutation(config.model.ffn, seed);
  const UnitShape shape = unit_shape(config);
  RunPlan permuted = plan;
  permuted.make_source = [&](const Config& one, const Layout& layout, DType storage) {
    auto source = plan.make_source ? plan.make_source(one, layout, storage)
                                   : make_data_source(one, layout, {.storage = storage});
    return permute_rows(std::move(source), seed << 32);
  };
  const TrainState* built = nullptr;
  const auto parameters = [&built] { return built; };
  permuted.decorate_device = [&](Device& device) {
    auto split = make_split_sums(device, config.parallel.tp, parameters);
    return noise.empty() ? std::move(split)
                         : make_noisy_update(std::move(split), noise, seed, parameters);
  };
  permuted.prepare = [&](RankContext& rank, TrainState& state) {
    built = &state;
    if (plan.prepare) {
      plan.prepare(rank, state);
    }
    for (const Parameter& parameter : state.store.parameters()) {
      std::vector<double> values = read_tensor(rank, parameter.shards.front().master);
      move_units(parameter.name(), values, shape, order, Direction::kPermute);
      set_kept(rank, parameter, Kept::kMaster, values);
    }
  };
  const std::int64_t accumulation =
      std::min<std::int64_t>(1 + index % 2, config.train.global_batch);
  Outcome outcome = run_one_rank(config, accumulation, permuted);
  restore(outcome.initial, shape, order);
  restore(outcome.gradients, shape, order);
  restore(outcome.weights, shape, order);
  restore(outcome.activations, shape, order);
  restore(outcome.local_gradients, shape, order);
  restore(outcome.first_weights, shape, order);
  return outcome;
}

}  // namespace tandem::verify
