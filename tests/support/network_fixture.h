// What tests of layers, optimizer and reducer share: a RankContext filled by hand from a test
// world, and a network that runs a step of given rows under any layout, device and precision and
// hands back its gradients as whole tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "layers/network.h"
#include "tests/support/ranks.h"
#include "tests/support/watched_communicator.h"

namespace tandem::test {

inline constexpr Precision kDouble{DType::kF64, DType::kF64, DType::kF64};
inline constexpr Precision kFloat{DType::kF32, DType::kF32, DType::kF32};
inline constexpr Precision kBFloat{DType::kBF16, DType::kF32, DType::kF32};

std::unique_ptr<Device> one_thread_reference();

double get(const Tensor& tensor, std::int64_t i);
void put(const Tensor& tensor, std::int64_t i, double value);
std::vector<double> values_of(const Tensor& tensor);

/// A tensor with its own host memory.
class HostTensor {
 public:
  HostTensor(DType dtype, const Shape& shape, double value = 0.0);
  HostTensor(DType dtype, const Shape& shape, const std::vector<double>& values);
  HostTensor(HostTensor&&) = default;
  HostTensor& operator=(HostTensor&&) = default;
  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }

 private:
  std::vector<std::byte> memory_;
  Tensor tensor_;
};

/// A tensor in the memory of a rank's device, which the host may not be able to touch.
class DeviceTensor {
 public:
  DeviceTensor(const RankContext& rank, DType dtype, const Shape& shape, double value = 0.0);
  DeviceTensor(const RankContext& rank, DType dtype, const Shape& shape,
               const std::vector<double>& values);
  DeviceTensor(DeviceTensor&&) = default;
  const Tensor& operator*() const { return tensor_; }

 private:
  struct Free {
    Device* device;
    void operator()(void* memory) const { device->deallocate(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  Tensor tensor_;
};

/// What a tensor of the device holds once the compute stream is through.
HostTensor fetch(const RankContext& rank, const Tensor& tensor);
/// Sets a tensor of the device; done when it returns.
void send(const RankContext& rank, const HostTensor& values, const Tensor& tensor);

/// This rank's place in a layout of tp x (world / tp) ranks, with its groups "tp" and "dp". Expects
/// at its end that somebody waited for every collective.
class TestRank {
 public:
  TestRank(World& world, Device& device, int tp, const Precision& precision);
  ~TestRank();
  TestRank(const TestRank&) = delete;
  TestRank& operator=(const TestRank&) = delete;

  RankContext context;

 private:
  Ledger ledger_;
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<WatchedCommunicator> tensor_parallel_, data_parallel_;
};

/// Builds twice, as a run does: `make(arena)` with a measuring arena, then with a real one.
template <typename T>
struct Built {
  template <typename Make>
  Built(Device& device, const Make& make) {
    Arena measured;
    make(measured);
    arena = std::make_unique<Arena>(device, measured);
    value = make(*arena);
  }
  T* operator->() const { return value.get(); }
  T& operator*() const { return *value; }

  std::unique_ptr<Arena> arena;
  std::unique_ptr<T> value;
};

/// Main gradients of the vectors that are the same on all tensor-parallel ranks.
Tensor replicated_gradients(const ParameterStore& store);

/// Sets weight and master to value(global index), and padding to 0. Without a rank: where they are
/// host memory, and padding stays as it is.
void set_values(const Parameter& parameter, const std::function<double(std::int64_t)>& value);
void set_values(const RankContext& rank, const Parameter& parameter,
                const std::function<double(std::int64_t)>& value);

/// Rows of a micro-batch, as every rank of a tensor-parallel group gets them.
struct Rows {
  std::int64_t rows = 0;
  std::int64_t tokens = 0;  ///< rows that count; the others have neither history nor target
  std::vector<double> ids, targets, input, expected, keys;
};
/// Rows with keys first_key, first_key + 1, ...; the last `padding` of them are padding. Histories
/// start at a document's start now and then, and some rows in the middle have no target.
Rows make_rows(const NetworkOptions& options, std::int64_t first_key, std::int64_t rows,
               std::int64_t padding);
Rows join(const Rows& first, const Rows& second);

/// A network with parameters that are functions of the global index, exact in bfloat16, large
/// enough for every part of the network to matter.
class NetworkRun {
 public:
  NetworkRun(TestRank& rank, const NetworkOptions& options, double dropout);

  /// The sum of token losses of a micro-batch, over all ranks of the tensor-parallel group.
  double loss(const Rows& rows);
  /// A step over the micro-batches: main gradients start as NaN and end, summed over the
  /// tensor-parallel group where they are partial, as those of scale * (sum of token losses).
  double step(const std::vector<Rows>& micro_batches, double scale);

  ParameterStore& store() { return built_->store; }

 private:
  struct Parts {
    Parts(const Layout& layout, const NetworkOptions& options)
        : store(layout), network(store, options) {}
    ParameterStore store;
    Network network;
  };

  double run(const std::vector<Rows>& micro_batches, double scale);

  RankContext* rank_;
  NetworkOptions options_;
  double dropout_;
  Built<Parts> built_;
};

using Tensors = std::map<std::string, std::vector<double>>;

/// Puts whole tensors together from the ranks' parts: expects every element from exactly one rank,
/// or the same bits from all where the parameter is replicated.
class Gatherer {
 public:
  /// Without a rank: where the tensors are host memory.
  void add(const ParameterStore& store, Tensor Parameter::*what);
  void add(const RankContext& rank, const ParameterStore& store, Tensor Parameter::*what);
  Tensors take();

 private:
  void add(const Parameter& parameter, const Tensor& local_values);

  std::mutex mutex_;
  Tensors tensors_;
  std::map<std::string, std::vector<int>> seen_;
};

struct NetworkSetup {
  NetworkOptions options;
  double dropout = 0.0;
  int tp = 1;
  Precision precision = kDouble;
  DeviceFactory device = one_thread_reference;
};
struct NetworkResult {
  double loss = 0.0;
  Tensors gradients;
};
NetworkResult run_network(const NetworkSetup& setup, const std::vector<Rows>& micro_batches,
                          double scale);

/// ||a - b|| / ||b||; 0 where both are 0.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);
/// Expects every tensor, and the loss, within `tolerance`.
void expect_close(const NetworkResult& actual, const NetworkResult& expected, double tolerance);

}  // namespace tandem::test
