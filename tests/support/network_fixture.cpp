#include "tests/support/network_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "core/philox.h"

namespace tandem::test {

namespace {

constexpr std::uint64_t kSeed = 7;

double normal(std::uint32_t stream, std::int64_t i) {
  return philox_normals(kSeed, RandomUse::kSynthetic, stream,
                        static_cast<std::uint64_t>(i / 4))[static_cast<std::size_t>(i % 4)];
}

double rounded(double value) { return static_cast<double>(BFloat16(value)); }

template <typename F>
decltype(auto) visit(DType type, F&& f) {
  switch (type) {
    case DType::kI64:
      return f(std::int64_t{});
    case DType::kI32:
      return f(std::int32_t{});
    default:
      return visit_floating(type, f);
  }
}

/// The value of element `global` of the index-th parameter.
double network_value(const Parameter& parameter, std::uint32_t index, std::int64_t global) {
  const double z = normal(100 + index, global);
  const Shape& shape = parameter.spec().shape;
  if (shape.rank() == 1) {
    return rounded(parameter.spec().init_value + 0.2 * z);
  }
  const double fan_in = shape.rank() == 2 ? static_cast<double>(shape[1]) : 2.0;
  return rounded(z / std::sqrt(fan_in));
}

}  // namespace

std::unique_ptr<Device> one_thread_reference() { return make_reference_device(1); }

double get(const Tensor& tensor, std::int64_t i) {
  return visit(tensor.dtype,
               [&](auto zero) { return static_cast<double>(tensor.as<decltype(zero)>()[i]); });
}

void put(const Tensor& tensor, std::int64_t i, double value) {
  visit(tensor.dtype,
        [&](auto zero) { tensor.as<decltype(zero)>()[i] = static_cast<decltype(zero)>(value); });
}

std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    values.push_back(get(tensor.flat(), i));
  }
  return values;
}

HostTensor::HostTensor(DType dtype, const Shape& shape, double value)
    : HostTensor(dtype, shape,
                 std::vector<double>(static_cast<std::size_t>(shape.numel()), value)) {}

HostTensor::HostTensor(DType dtype, const Shape& shape, const std::vector<double>& values)
    : memory_(values.size() * size_of(dtype)), tensor_(memory_.data(), dtype, shape) {
  ensure(static_cast<std::int64_t>(values.size()) == shape.numel(), "values and shape differ");
  for (std::size_t i = 0; i < values.size(); ++i) {
    put(tensor_, static_cast<std::int64_t>(i), values[i]);
  }
}

DeviceTensor::DeviceTensor(const RankContext& rank, DType dtype, const Shape& shape, double value)
    : DeviceTensor(rank, dtype, shape,
                   std::vector<double>(static_cast<std::size_t>(shape.numel()), value)) {}

DeviceTensor::DeviceTensor(const RankContext& rank, DType dtype, const Shape& shape,
                           const std::vector<double>& values)
    : memory_(rank.device->allocate(std::max<std::size_t>(values.size() * size_of(dtype), 1)),
              Free{rank.device}),
      tensor_(memory_.get(), dtype, shape) {
  send(rank, HostTensor(dtype, shape, values), tensor_);
}

HostTensor fetch(const RankContext& rank, const Tensor& tensor) {
  HostTensor values(tensor.dtype, tensor.shape);
  rank.device->copy(*rank.compute, tensor, *values);
  rank.compute->synchronize();
  return values;
}

void send(const RankContext& rank, const HostTensor& values, const Tensor& tensor) {
  rank.device->copy(*rank.compute, *values, tensor);
  rank.compute->synchronize();
}

TestRank::TestRank(World& world, Device& device, int tp, const Precision& precision)
    : compute_(device.make_stream("compute")) {
  context.layout = {.tp = tp, .dp = world.size() / tp, .rank = world.rank()};
  context.precision = precision;
  context.device = &device;
  context.compute = compute_.get();
  const auto group = [&](const char* name, const std::vector<int>& ranks) {
    return std::make_unique<WatchedCommunicator>(
        world.make_group(name, ranks, device, &ledger_, nullptr), device);
  };
  tensor_parallel_ = group("tp", context.layout.tp_group());
  data_parallel_ = group("dp", context.layout.dp_group());
  context.tensor_parallel = tensor_parallel_.get();
  context.data_parallel = data_parallel_.get();
  context.ledger = &ledger_;
}

TestRank::~TestRank() {
  for (const auto* group : {tensor_parallel_.get(), data_parallel_.get()}) {
    EXPECT_TRUE(group->dropped() == 0 || std::uncaught_exceptions() > 0)
        << group->dropped() << " collectives of group " << group->name()
        << " were dropped before anybody waited for them";
  }
}

Tensor replicated_gradients(const ParameterStore& store) {
  const auto& owned = store.owned();
  return std::find_if(owned.begin(), owned.end(), [](const OwnedRange& o) { return o.replicated; })
      ->range.main_grad;
}

void set_values(const Parameter& parameter, const std::function<double(std::int64_t)>& value) {
  parameter.for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
    for (std::int64_t i = 0; i < length; ++i) {
      put(parameter.weight, local + i, value(global + i));
      put(parameter.shards.front().master, local + i, value(global + i));
    }
  });
}

void set_values(const RankContext& rank, const Parameter& parameter,
                const std::function<double(std::int64_t)>& value) {
  std::vector<double> values(static_cast<std::size_t>(parameter.local_shape().numel()), 0.0);
  parameter.for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
    for (std::int64_t i = 0; i < length; ++i) {
      values[static_cast<std::size_t>(local + i)] = value(global + i);
    }
  });
  set_master(*rank.device, *rank.compute, parameter, std::span<const double>(values));
}

Rows make_rows(const NetworkOptions& options, std::int64_t first_key, std::int64_t rows,
               std::int64_t padding) {
  Rows made{.rows = rows, .tokens = rows - padding};
  const auto draw = [&](std::uint32_t stream, std::int64_t i) {
    const PhiloxBlock block =
        philox_draw(kSeed, RandomUse::kSynthetic, stream, static_cast<std::uint64_t>(i));
    return block.x[0] % static_cast<std::uint32_t>(options.vocab);
  };
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t key = first_key + r;
    const bool real = r < made.tokens;
    made.keys.push_back(static_cast<double>(key));
    if (options.language_model) {
      const std::int64_t history = 1 + key % options.context;
      for (std::int64_t j = 0; j < options.context; ++j) {
        made.ids.push_back(real && j < history ? draw(1, key * options.context + j) : -1.0);
      }
      made.targets.push_back(real && key % 5 != 3 ? draw(2, key) : -1.0);
    }
    for (std::int64_t c = 0; c < options.hidden && !options.language_model; ++c) {
      made.input.push_back(real ? rounded(normal(3, key * options.hidden + c)) : 0.0);
      made.expected.push_back(real ? rounded(normal(4, key * options.hidden + c)) : 0.0);
    }
  }
  return made;
}

Rows join(const Rows& first, const Rows& second) {
  Rows whole = first;
  whole.rows += second.rows;
  whole.tokens += second.tokens;
  for (auto member : {&Rows::ids, &Rows::targets, &Rows::input, &Rows::expected, &Rows::keys}) {
    (whole.*member).insert((whole.*member).end(), (second.*member).begin(), (second.*member).end());
  }
  return whole;
}

NetworkRun::NetworkRun(TestRank& rank, const NetworkOptions& options, double dropout)
    : rank_(&rank.context),
      options_(options),
      dropout_(dropout),
      built_(*rank_->device, [&](Arena& arena) {
        auto parts = std::make_unique<Parts>(rank_->layout, options);
        parts->store.allocate(arena, rank_->precision, {});
        parts->network.allocate(arena, rank_->precision, rank_->layout);
        return parts;
      }) {
  std::uint32_t index = 0;
  for (const Parameter& parameter : store().parameters()) {
    set_values(*rank_, parameter,
               [&](std::int64_t global) { return network_value(parameter, index, global); });
    ++index;
  }
}

double NetworkRun::loss(const Rows& rows) { return run({rows}, 0.0); }

double NetworkRun::step(const std::vector<Rows>& micro_batches, double scale) {
  for (const Parameter& parameter : store().parameters()) {
    const Tensor& gradient = parameter.main_grad;
    send(*rank_,
         HostTensor(gradient.dtype, gradient.shape, std::numeric_limits<double>::quiet_NaN()),
         gradient);
  }
  const double loss = run(micro_batches, scale);
  if (options_.sequence_parallel) {
    rank_->tensor_parallel
        ->all_reduce(replicated_gradients(store()),
                     {.after = rank_->compute, .label = "sequence-parallel gradients"})
        .wait(*rank_->compute);
    rank_->compute->synchronize();
  }
  return loss;
}

double NetworkRun::run(const std::vector<Rows>& micro_batches, double scale) {
  const DeviceTensor loss_sum(*rank_, DType::kF64, {1});
  std::vector<DeviceTensor> alive;
  const auto upload = [&](DType dtype, const Shape& shape, const std::vector<double>& values) {
    alive.emplace_back(*rank_, dtype, shape, values);
    return *alive.back();
  };
  bool first = true;
  for (const Rows& rows : micro_batches) {
    NetworkInput input{.tokens = rows.tokens};
    if (options_.language_model) {
      input.ids = upload(DType::kI32, {rows.rows, options_.context}, rows.ids);
      input.targets = upload(DType::kI32, {rows.rows}, rows.targets);
    } else {
      const Shape shape = {rows.rows, options_.hidden};
      input.input = upload(rank_->precision.storage, shape, rows.input);
      input.expected = upload(rank_->precision.storage, shape, rows.expected);
    }
    const Pass pass{.rank = rank_,
                    .rows = rows.rows,
                    .row_keys = upload(DType::kI64, {rows.rows}, rows.keys),
                    .dropout = {.p = dropout_, .seed = 3, .update = 5},
                    .write = first ? Write::kOverwrite : Write::kAccumulate};
    built_->network.forward(pass, input, scale, *loss_sum);
    if (scale != 0.0) {
      built_->network.backward(pass);
    }
    first = false;
  }
  if (built_->network.loss_is_partial()) {
    rank_->tensor_parallel->all_reduce(*loss_sum, {.after = rank_->compute, .label = "loss"})
        .wait(*rank_->compute);
  }
  return get(*fetch(*rank_, *loss_sum), 0);
}

void Gatherer::add(const ParameterStore& store, Tensor Parameter::*what) {
  for (const Parameter& parameter : store.parameters()) {
    add(parameter, parameter.*what);
  }
}

void Gatherer::add(const RankContext& rank, const ParameterStore& store, Tensor Parameter::*what) {
  for (const Parameter& parameter : store.parameters()) {
    const HostTensor local_values = fetch(rank, parameter.*what);
    add(parameter, *local_values);
  }
}

void Gatherer::add(const Parameter& parameter, const Tensor& local_values) {
  const std::scoped_lock lock(mutex_);
  const auto size = static_cast<std::size_t>(parameter.spec().shape.numel());
  std::vector<double>& whole = tensors_[parameter.name()];
  std::vector<int>& seen = seen_[parameter.name()];
  whole.resize(size);
  seen.resize(size);
  parameter.for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
    for (std::int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<std::size_t>(global + i);
      const double value = get(local_values, local + i);
      if (seen[at]++ == 0) {
        whole[at] = value;
      } else {
        EXPECT_FALSE(parameter.is_cut()) << parameter.name() << " " << at << " comes twice";
        EXPECT_EQ(value, whole[at]) << parameter.name() << " " << at << " differs between ranks";
      }
    }
  });
}

Tensors Gatherer::take() {
  for (const auto& [name, seen] : seen_) {
    for (std::size_t i = 0; i < seen.size(); ++i) {
      EXPECT_GT(seen[i], 0) << name << " " << i << " is on no rank";
    }
  }
  return std::move(tensors_);
}

NetworkResult run_network(const NetworkSetup& setup, const std::vector<Rows>& micro_batches,
                          double scale) {
  Gatherer gatherer;
  std::vector<double> losses(static_cast<std::size_t>(setup.tp));
  run_ranks(
      setup.tp,
      [&](World& world, Device& device) {
        TestRank rank(world, device, setup.tp, setup.precision);
        NetworkRun network(rank, setup.options, setup.dropout);
        losses[static_cast<std::size_t>(world.rank())] = network.step(micro_batches, scale);
        gatherer.add(rank.context, network.store(), &Parameter::main_grad);
      },
      setup.device);
  for (const double loss : losses) {
    EXPECT_EQ(loss, losses[0]) << "the ranks' losses differ";
  }
  return {losses[0], gatherer.take()};
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return difference == 0.0 ? 0.0 : std::sqrt(difference / size);
}

void expect_close(const NetworkResult& actual, const NetworkResult& expected, double tolerance) {
  EXPECT_LE(relative_error({actual.loss}, {expected.loss}), tolerance) << "loss";
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    ASSERT_TRUE(actual.gradients.contains(name)) << name;
    ASSERT_EQ(actual.gradients.at(name).size(), gradient.size()) << name;
    EXPECT_LE(relative_error(actual.gradients.at(name), gradient), tolerance) << name;
    EXPECT_GT(relative_error(gradient, std::vector<double>(gradient.size(), 0.0)), 0.0)
        << name << " gets no gradient, so nothing was compared";
  }
}

}  // namespace tandem::test
