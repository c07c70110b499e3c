#include "tools/verify/exact.h"

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "tools/verify/exact_device.h"
#include "train/checkpoint/load.h"

namespace tandem::verify {

namespace {

constexpr std::int64_t kTokens = 64;  // of the step: dividing by it is exact
/// Integers up to here are exact.
constexpr double kSumLimit = 0x1p24;
double storage_limit(PrecisionChoice precision) {
  return precision == PrecisionChoice::kBf16 ? 0x1p8 : 0x1p24;
}

/// A small number drawn from an index: in [-range, range].
std::int64_t draw(std::uint32_t stream, std::uint64_t index, std::int64_t range) {
  const PhiloxBlock block = philox_draw(99, RandomUse::kSynthetic, stream, index);
  return static_cast<std::int64_t>(block.x[0] % static_cast<std::uint32_t>(2 * range + 1)) - range;
}
double sign(std::uint64_t index) { return draw(1, index, 1) >= 0 ? 1.0 : -1.0; }

/// Element `index` of the global tensor. Matrices [rows, columns]: row i is not zero at column i
/// (shifted) and at every column `rows` further on, or, where there are more rows than columns, at
/// column i modulo columns: so every row and every column is hit.
double element(const ParameterSpec& spec, std::int64_t index, bool absolute) {
  const auto at = static_cast<std::uint64_t>(index);
  double value = 0.0;
  if (spec.shape.rank() == 1) {
    value = static_cast<double>(draw(2, at, 2));
  } else if (spec.shape.rank() == 3) {  // the embedding: one column in eight
    value = index % 8 == (index / spec.shape[2]) % 8 ? sign(at) : 0.0;
  } else {
    const std::int64_t rows = spec.shape[0];
    const std::int64_t columns = spec.shape[1];
    const std::int64_t i = index / columns;
    const std::int64_t j = (index % columns + columns - 5 % columns) % columns;
    value = j % std::min(rows, columns) == i % std::min(rows, columns) ? sign(at) : 0.0;
    if (rows > columns) {
      value = j == i % columns ? sign(at) : 0.0;
    }
  }
  return absolute ? std::abs(value) : value;
}

void set_weights(RankContext& rank, TrainState& state, bool absolute) {
  for (const Parameter& parameter : state.store.parameters()) {
    std::vector<double> values(static_cast<std::size_t>(parameter.local_shape().numel()), 0.0);
    parameter.for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
      for (std::int64_t i = 0; i < length; ++i) {
        values[static_cast<std::size_t>(local + i)] =
            element(parameter.spec(), global + i, absolute);
      }
    });
    set_kept(rank, parameter, Kept::kMaster, values);
  }
}

/// Tokens of each micro-batch, data rank by data rank: uneven, the first one empty if there are
/// several, kTokens in all.
std::vector<std::int64_t> token_counts(std::int64_t batches) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(batches), 0);
  std::int64_t left = kTokens;
  for (std::int64_t i = 1; i + 1 < batches; ++i) {
    const std::int64_t share = left / (batches - i);
    counts[static_cast<std::size_t>(i)] = std::max<std::int64_t>(share + i % 3 - 1, 0);
    left -= counts[static_cast<std::size_t>(i)];
  }
  counts.back() = left;
  return counts;
}

/// Rows [first, first + count) of the step's kTokens rows, as one micro-batch. Padded no further
/// than to a multiple of tp, so that under sequence parallelism every rank has rows that count.
class ExactRows {
 public:
  ExactRows(const Config& config, std::int64_t first, std::int64_t count, DType storage,
            bool absolute)
      : rows_((count + config.parallel.tp - 1) / config.parallel.tp * config.parallel.tp) {
    const std::int64_t context = config.model.context;
    const std::int64_t hidden = config.model.hidden;
    const bool language_model = config.model.kind == ModelKind::kMlpLm;
    keys_.assign(static_cast<std::size_t>(rows_), -1);
    if (language_model) {
      ids_.assign(static_cast<std::size_t>(rows_ * context), -1);
      targets_.assign(static_cast<std::size_t>(rows_), -1);
    } else {
      input_.assign(static_cast<std::size_t>(rows_ * hidden) * size_of(storage), std::byte{});
      expected_ = input_;
      batch_.input = Tensor(input_.data(), storage, {rows_, hidden});
      batch_.expected = Tensor(expected_.data(), storage, {rows_, hidden});
    }
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t row = first + r;
      keys_[static_cast<std::size_t>(r)] = row;
      for (std::int64_t j = 0; language_model && j < std::min(context, row % context + 1); ++j) {
        ids_[static_cast<std::size_t>(r * context + j)] = token(config, 3, row * context + j);
      }
      if (language_model) {
        targets_[static_cast<std::size_t>(r)] = token(config, 4, row);
      }
      for (std::int64_t i = 0; !language_model && i < hidden; ++i) {
        const auto at = static_cast<std::uint64_t>(row * hidden + i);
        put(batch_.input, r * hidden + i, number(5, at, absolute));
        put(batch_.expected, r * hidden + i, number(6, at, absolute));
      }
    }
    batch_.rows = rows_;
    batch_.tokens = count;
    batch_.row_keys = Tensor::of<std::int64_t>(keys_, {rows_});
    if (language_model) {
      batch_.ids = Tensor::of<std::int32_t>(ids_, {rows_, context});
      batch_.targets = Tensor::of<std::int32_t>(targets_, {rows_});
    }
  }

  const MicroBatch& batch() const { return batch_; }

 private:
  static std::int32_t token(const Config& config, std::uint32_t stream, std::int64_t index) {
    const PhiloxBlock block =
        philox_draw(99, RandomUse::kSynthetic, stream, static_cast<std::uint64_t>(index));
    return static_cast<std::int32_t>(block.x[0] %
                                     static_cast<std::uint64_t>(config.model.vocab_size));
  }
  static double number(std::uint32_t stream, std::uint64_t index, bool absolute) {
    const auto value = static_cast<double>(draw(stream, index, 1));
    return absolute ? std::abs(value) : value;
  }
  static void put(const Tensor& tensor, std::int64_t index, double value) {
    visit_floating(tensor.dtype, [&](auto type) {
      tensor.as<decltype(type)>()[index] = static_cast<decltype(type)>(value);
    });
  }

  std::int64_t rows_;
  std::vector<std::int32_t> ids_, targets_;
  std::vector<std::int64_t> keys_;
  std::vector<std::byte> input_, expected_;
  MicroBatch batch_;
};

/// The step's rows cut for one data rank; the same whole step whatever the layout.
class ExactSource final : public DataSource {
 public:
  /// `counts`: tokens per micro-batch of the layout under test, all data ranks'. A layout of one
  /// data rank with one micro-batch gets all of them joined.
  ExactSource(const Config& config, const Layout& layout, DType storage,
              std::vector<std::int64_t> counts, bool absolute) {
    const std::int64_t accumulation = config.accumulation();
    if (layout.dp == 1 && accumulation == 1) {
      counts = {kTokens};
    }
    std::int64_t first = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (static_cast<std::int64_t>(i) / accumulation == layout.dp_rank()) {
        rows_.push_back(std::make_unique<ExactRows>(config, first, counts[i], storage, absolute));
        batches_.push_back(rows_.back()->batch());
      }
      first += counts[i];
    }
  }
  std::span<const MicroBatch> fetch_step(std::int64_t) override { return batches_; }
  std::int64_t evaluation_batches() const override { return 0; }
  const MicroBatch& fetch_evaluation(std::int64_t) override { return batches_.front(); }
  std::string describe() const override { return "exact integers"; }

 private:
  std::vector<std::unique_ptr<ExactRows>> rows_;
  std::vector<MicroBatch> batches_;
};

Config exact_config(Config config, PrecisionChoice precision, std::int64_t layers) {
  config.precision = precision;
  config.device = config.device == DeviceChoice::kReference ? DeviceChoice::kCpu : config.device;
  config.cuda.tf32 = false;
  config.model.layers = layers;
  if (config.model.activation == Activation::kGelu) {
    config.model.activation = Activation::kRelu;
  }
  if (config.model.dropout > 0.0) {
    config.model.dropout = 0.5;
  }
  // Room for kTokens rows in any one micro-batch; the counts come from ExactSource.
  const std::int64_t accumulation = config.accumulation();
  config.data.seq_len = kTokens;
  config.train.micro_batch = 1;
  config.train.global_batch = config.parallel.dp * accumulation;
  config.train.clip_grad_norm = 0.0;
  config.parallel.grad_dtype = GradientType::kFp32;  // a rounding by design
  config.optim.kind = OptimizerKind::kSgd;
  config.optim.momentum = 0.0;
  config.optim.weight_decay = 0.0;
  config.optim.lr = 1.0;
  config.optim.schedule = {.kind = ScheduleKind::kConstant, .warmup_steps = 0, .decay_steps = 0};
  return config;
}

RunPlan exact_plan(const Config& config, bool absolute) {
  const auto counts = token_counts(config.parallel.dp * config.accumulation());
  return {
      .steps = 1,
      .make_source =
          [=](const Config& run, const Layout& layout, DType storage) {
            return std::make_unique<ExactSource>(run, layout, storage, counts, absolute);
          },
      .decorate_device = [=](Device& real) { return make_exact_device(real, absolute); },
      .prepare = [=](RankContext& rank, TrainState& state) { set_weights(rank, state, absolute); }};
}

double largest(const WholeTensors& tensors) {
  double most = 0.0;
  for (const auto& [name, values] : tensors) {
    for (const double value : values) {
      most = std::max(most, std::abs(value));
    }
  }
  return most;
}

/// Every sum of the step is at most the largest gradient or the loss of the absolute step, in units
/// of 1 / kTokens: an activation is a term of a weight gradient or of the loss.
double sum_bound_of(const Outcome& absolute) {
  return kTokens * std::max(largest(absolute.gradients), std::abs(absolute.losses.front()));
}

/// The largest value that is kept in the storage type; gradients in units of 1 / kTokens.
double stored_bound_of(const Outcome& absolute) {
  double most = 0.0;
  for (const auto& [name, values] : absolute.activations) {
    if (name == "ids" || name == "targets" || name.starts_with("loss ")) {
      continue;  // integers, and statistics in the sum type
    }
    const bool gradient = name.starts_with("d_") || name.find(" d_") != std::string::npos;
    for (const double value : values) {
      most = std::max(most, std::abs(value) * (gradient ? kTokens : 1));
    }
  }
  return most;
}

/// Whether the sum of the squares of the step's gradients is exact in double.
bool norm_is_exact(const Outcome& run) {
  double squares = 0.0;
  for (const auto& [name, values] : run.gradients) {
    for (const double value : values) {
      squares += kTokens * value * kTokens * value;
    }
  }
  return squares < 0x1p53;
}

/// Finds the most layers whose numbers are exact; rank 0 looks, all know. False if there are none.
bool bound(World& world, Communicator& control, const Config& config, PrecisionChoice precision,
           ExactArgument& argument) {
  std::int64_t layers = 0;
  if (world.rank() == 0) {
    for (layers = std::min<std::int64_t>(config.model.layers, 4); layers > 0; --layers) {
      const Config absolute = exact_config(config, PrecisionChoice::kFp32, layers);
      const Outcome outcome = run_one_rank(absolute, 1, exact_plan(absolute, true));
      argument.sum_bound = sum_bound_of(outcome);
      argument.stored_bound = stored_bound_of(outcome);
      if (argument.sum_bound < kSumLimit && argument.stored_bound < storage_limit(precision)) {
        break;
      }
    }
  }
  control.broadcast(Tensor(&layers, DType::kI64, {1}), 0, {.label = "verify layers"}).wait_host();
  argument.config = exact_config(config, precision, layers);
  return layers > 0;
}

}  // namespace

std::vector<ExactArgument> run_exact(World& world, const Config& config,
                                     const Decorators& under_test) {
  const std::unique_ptr<Device> host = make_reference_device(1);
  const auto control = world.make_group(
      "verify exact", Layout{config.parallel.tp, config.parallel.dp, 0}.world_group(), *host,
      nullptr, nullptr);
  std::vector<PrecisionChoice> precisions = {PrecisionChoice::kFp32};
  if (config.precision == PrecisionChoice::kBf16) {
    precisions.push_back(PrecisionChoice::kBf16);
  }
  std::vector<ExactArgument> arguments;
  for (const PrecisionChoice precision : precisions) {
    ExactArgument argument;
    if (!bound(world, *control, config, precision, argument)) {
      continue;
    }
    const RunPlan plan = exact_plan(argument.config, false);
    argument.layout = run_layout(world, argument.config, plan, under_test);
    if (world.rank() == 0) {
      argument.one_rank = run_one_rank(argument.config, 1, plan);
      argument.rows = compare_exact(argument.layout, argument.one_rank);
      if (!norm_is_exact(argument.one_rank)) {
        std::erase_if(argument.rows, [](const Row& row) { return row.tensor == "gradient norm"; });
      }
    }
    if (all_pass(argument.rows)) {
      argument.layout = argument.one_rank = {};
    }
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

}  // namespace tandem::verify
