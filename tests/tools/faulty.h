// What stands in for a bug: decorators at the seams that let a test change one collective, one
// kernel, the rows of a step or the initial weights of the run under test, and nothing else.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/world.h"
#include "tools/verify/forwarding_device.h"
#include "tools/verify/outcome.h"

namespace tandem::test {

/// A collective on its way: `forward` makes it. `input` and `output` are the same tensor in an
/// all-reduce.
struct InterceptedCall {
  std::string group, label;
  int index = 0;  ///< of this rank in the group
  int size = 1;
  Tensor input, output;
  std::function<void()> forward;  ///< makes the collective and waits for it
};
/// What a faulty communicator does instead.
using Intercept = std::function<void(const InterceptedCall&)>;

/// A rank's world whose collectives all pass `intercept`. `dp_is_tp`: the group named dp gets the
/// ranks of the group named tp.
class FaultyWorld final : public World {
 public:
  FaultyWorld(World& inner, Intercept intercept, bool dp_is_tp = false)
      : inner_(&inner), intercept_(std::move(intercept)), dp_is_tp_(dp_is_tp) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string kind() const override { return inner_->kind(); }
  std::unique_ptr<Communicator> make_group(const std::string& name, const std::vector<int>& ranks,
                                           Device& device, Ledger* ledger,
                                           Profiler* profiler) override;
  void set_timeout(double seconds) override { inner_->set_timeout(seconds); }
  void check() override { inner_->check(); }
  std::string raise(const Alarm& alarm) override { return inner_->raise(alarm); }
  FlightRecorder& recorder() override { return inner_->recorder(); }

 private:
  World* inner_;
  Intercept intercept_;
  bool dp_is_tp_;
  std::vector<int> tp_ranks_;
};

/// A kernel's replacement; empty: the real one.
template <typename Arguments>
using Kernel = std::function<void(Device& real, Stream& stream, Arguments args)>;

struct FaultyKernels {
  Kernel<Gemm> gemm;
  Kernel<ActivationForward> activation_forward;
  Kernel<ActivationBackward> activation_backward;
  Kernel<NormForward> norm_forward;
  Kernel<NormBackward> norm_backward;
  Kernel<EmbeddingForward> embedding_forward;
  Kernel<EmbeddingBackward> embedding_backward;
  Kernel<CrossEntropySums> cross_entropy_sums;
  Kernel<CrossEntropyBackward> cross_entropy_backward;
  Kernel<MeanSquaredError> mean_squared_error;
  Kernel<BiasDropoutAdd> bias_dropout_add;
  Kernel<DropoutBackward> dropout_backward;
  Kernel<ColumnSum> column_sum;
  Kernel<SumOfSquares> sum_of_squares;
  Kernel<AdamW> adamw;
  Kernel<Sgd> sgd;
};
std::unique_ptr<Device> make_faulty_device(Device& real, FaultyKernels kernels);

/// Changes the micro-batches of every step. Their tensors' memory may be written to.
using ChangeStep = std::function<void(std::vector<MicroBatch>&)>;
std::unique_ptr<DataSource> make_faulty_source(std::unique_ptr<DataSource> real, ChangeStep change);

/// One bug, on its own.
struct Fault {
  std::string name;
  Config config;
  /// Words of which the diagnosis must hold all: the operator or rule at fault.
  std::vector<std::string> named;
  Intercept communication;  ///< shared by all ranks: keeps no state of its own
  bool dp_is_tp = false;
  /// Made for each rank and each run.
  std::function<FaultyKernels(const Layout&, const std::function<const TrainState*()>&)> kernels;
  std::function<ChangeStep(const Config&, const Layout&)> data;
  std::function<void(RankContext&, TrainState&)> prepare;
};

/// Generated text in two layers on two by two ranks, two micro-batches, a vocabulary that does not
/// divide; clipping is at work.
Config fault_config();

std::vector<Fault> communication_faults();
std::vector<Fault> kernel_faults();
std::vector<Fault> update_faults();
std::vector<Fault> data_faults();

}  // namespace tandem::test
