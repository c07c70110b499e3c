// The network in the storage types of real runs, against double; and behind streams that are late.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/cuda/emulated_cuda.h"
#include "tests/support/deferred_device.h"
#include "tests/support/network_fixture.h"

namespace tandem::test {

namespace {

constexpr double kScale = 1.0 / 32.0;

NetworkOptions sized(std::int64_t hidden, std::int64_t ffn, Activation activation) {
  return {.vocab = 10,
          .context = 3,
          .hidden = hidden,
          .ffn = ffn,
          .layers = 2,
          .activation = activation,
          .dropout = true,
          .max_rows = 32};
}

/// Two hidden values: one bare block, since the norm of two values is nearly constant and a
/// gradient that went through several of them is mostly rounding.
NetworkOptions two_wide(Activation activation) {
  NetworkOptions options = sized(2, 6, activation);
  options.language_model = false;
  options.norm = NormKind::kRmsNorm;
  options.layers = 1;
  return options;
}

/// The network on a device in `precision`, held against one rank in double.
void expect_accurate(NetworkOptions options, int tp, const Precision& precision, double tolerance,
                     const DeviceFactory& device = one_thread_cpu) {
  const std::vector<Rows> step = {make_rows(options, 0, 32, 4)};
  const NetworkResult exact = run_network({.options = options, .dropout = 0.1}, step, kScale);
  for (const bool sequence_parallel : {false, true}) {
    options.sequence_parallel = sequence_parallel;
    expect_close(run_network({.options = options,
                              .dropout = 0.1,
                              .tp = tp,
                              .precision = precision,
                              .device = device},
                             step, kScale),
                 exact, tolerance);
  }
}

// B145: three columns of fc1 per rank, and sizes that are whole vectors.
TEST(NetworkPrecision, Fp32IsWithin1e5OfDouble) {
  expect_accurate(two_wide(Activation::kGelu), 2, kFloat, 1e-5);
  expect_accurate(two_wide(Activation::kSwiglu), 2, kFloat, 1e-5);
  expect_accurate(sized(64, 256, Activation::kGelu), 2, kFloat, 1e-5);
  expect_accurate(sized(64, 256, Activation::kSwiglu), 4, kFloat, 1e-5);
}

TEST(NetworkPrecision, Bf16IsWithin2PercentOfDouble) {
  expect_accurate(two_wide(Activation::kGelu), 2, kBFloat, 2e-2);
  expect_accurate(sized(64, 256, Activation::kGelu), 2, kBFloat, 2e-2);
  expect_accurate(sized(64, 256, Activation::kSwiglu), 4, kBFloat, 2e-2);
}

#ifndef __SANITIZE_THREAD__  // it does not understand fibers
// The cuda device's own kernels, run by the host; ranks are threads that share the device's memory.
TEST(NetworkPrecision, TheCudaDevicesKernelsAreAsCloseToDouble) {
  for (const bool epilogues : {true, false}) {
    const auto device = [=] { return testing::make_emulated_cuda_device(epilogues); };
    expect_accurate(sized(64, 256, Activation::kGelu), 2, kFloat, 1e-5, device);
    expect_accurate(sized(64, 256, Activation::kGelu), 2, kBFloat, 2e-2, device);
    expect_accurate(sized(64, 256, Activation::kSwiglu), 4, kBFloat, 2e-2, device);
  }
}
#endif

// A wait that is missing, or a buffer used too early, shows as other bits.
TEST(NetworkStreams, AStepOnLateStreamsGivesTheBitsOfOneThatRunsAtOnce) {
  for (const bool language_model : {true, false}) {
    for (const bool sequence_parallel : {false, true}) {
      NetworkOptions options = sized(8, 12, Activation::kSwiglu);
      options.language_model = language_model;
      options.sequence_parallel = sequence_parallel;
      const std::vector<Rows> step = {make_rows(options, 0, 32, 4), make_rows(options, 32, 32, 0)};
      NetworkSetup setup{.options = options,
                         .dropout = 0.2,
                         .tp = 2,
                         .precision = kFloat,
                         .device = one_thread_cpu};
      const NetworkResult at_once = run_network(setup, step, kScale);
      std::atomic<std::uint64_t> seed{0};
      setup.device = [&] { return testing::make_deferred_device(1, 1000 * ++seed); };
      for (int round = 0; round < 3; ++round) {
        expect_close(run_network(setup, step, kScale), at_once, 0.0);
      }
    }
  }
}

}  // namespace

}  // namespace tandem::test
