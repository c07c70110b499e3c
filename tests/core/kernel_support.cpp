#include "tests/core/kernel_support.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>

#include "parallel/cuda_module.h"
#include "tests/support/cuda/emulated_cuda.h"
#include "tests/support/deferred_device.h"

namespace tandem::testing {
namespace {

/// A contiguous host copy's values as doubles.
std::vector<double> to_doubles(const Tensor& host) {
  std::vector<double> values;
  const auto append = [&](auto type) {
    for (const auto v : host.span<decltype(type)>()) {
      values.push_back(static_cast<double>(v));
    }
  };
  switch (host.dtype) {
    case DType::kI64:
      append(std::int64_t{});
      break;
    case DType::kI32:
      append(std::int32_t{});
      break;
    case DType::kU8:
      append(std::uint8_t{});
      break;
    default:
      visit_floating(host.dtype, append);
  }
  return values;
}

void from_doubles(const std::vector<double>& values, const Tensor& host) {
  const auto assign = [&](auto type) {
    const auto out = host.span<decltype(type)>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<decltype(type)>(values[i]);
    }
  };
  switch (host.dtype) {
    case DType::kI64:
      return assign(std::int64_t{});
    case DType::kI32:
      return assign(std::int32_t{});
    case DType::kU8:
      return assign(std::uint8_t{});
    default:
      return visit_floating(host.dtype, assign);
  }
}

std::vector<double> download(Device& device, Stream& stream, const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  const Tensor host(bytes.data(), tensor.dtype, tensor.shape);
  device.copy(stream, tensor, host);
  stream.synchronize();
  return to_doubles(host);
}

/// This machine's first GPU; says once why there is none.
const CudaModule* gpu() {
  static const CudaModule* const module = [] {
    const CudaFound found = find_cuda();
    if (found.module == nullptr) {
      std::cerr << "No kernel is tested on a GPU: " << found.missing << ".\n";
    }
    return found.module;
  }();
  return module;
}

}  // namespace

std::vector<DeviceCase> device_cases() {
  const Precision fp64{DType::kF64, DType::kF64, DType::kF64};
  const Precision fp32{DType::kF32, DType::kF32, DType::kF32};
  const Precision bf16{DType::kBF16, DType::kF32, DType::kF32};
  const Precision fp16{DType::kF16, DType::kF32, DType::kF32};
  const auto reference = [] { return make_reference_device(1); };
  const auto cpu = [] { return make_cpu_device(1); };
  [[maybe_unused]] const auto cpu_threads = [] { return make_cpu_device(3); };
  [[maybe_unused]] const auto emulated = [] { return make_emulated_cuda_device(true); };
  const auto deferred = [] { return make_deferred_device(1, 7); };
  std::vector<DeviceCase> cases = {
      {"reference_fp64", reference, fp64},
      {"cpu_fp32", cpu, fp32},
      {"cpu_bf16", cpu, bf16},
      {"cpu_fp16", cpu, fp16},
      {"deferred_fp32", deferred, fp32},
      {"deferred_bf16", deferred, bf16},
  };
#ifndef __SANITIZE_THREAD__  // it understands neither libgomp's barriers nor fibers
  cases.push_back({"cpu_3_threads_fp32", cpu_threads, fp32});
  cases.push_back({"cpu_3_threads_bf16", cpu_threads, bf16});
  cases.push_back({"emulated_cuda_fp32", emulated, fp32});
  cases.push_back({"emulated_cuda_bf16", emulated, bf16});
  cases.push_back({"emulated_cuda_fp16", emulated, fp16});
#endif
  if (gpu() != nullptr) {
    const auto cuda = [] { return gpu()->make_device({}); };
    cases.push_back({"cuda_fp32", cuda, fp32});
    cases.push_back({"cuda_bf16", cuda, bf16});
    cases.push_back({"cuda_fp16", cuda, fp16});
  }
  return cases;
}

std::vector<DeviceCase> fallback_cases() {
  std::vector<DeviceCase> cases;
#ifndef __SANITIZE_THREAD__
  cases.push_back({"emulated_cuda_without_epilogues_bf16",
                   [] { return make_emulated_cuda_device(false); },
                   {DType::kBF16, DType::kF32, DType::kF32}});
#endif
  return cases;
}

std::string case_name(const ::testing::TestParamInfo<DeviceCase>& info) { return info.param.name; }

double roundoff(DType type) {
  switch (type) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kF32:
      return 0x1p-24;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF16:
      return 0x1p-11;
    default:
      return 0.0;
  }
}

KernelTest::KernelTest()
    : device_(GetParam().make()),
      oracle_(make_reference_device(1)),
      stream_(device_->make_stream("test")),
      oracle_stream_(oracle_->make_stream("oracle")) {}

KernelTest::~KernelTest() {
  for (void* memory : device_memory_) {
    device_->deallocate(memory);
  }
  for (void* memory : oracle_memory_) {
    oracle_->deallocate(memory);
  }
}

Twin KernelTest::allocate(const Shape& shape, DType type) {
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(type);
  device_memory_.push_back(device_->allocate(bytes));
  oracle_memory_.push_back(oracle_->allocate(bytes));
  return {Tensor(device_memory_.back(), type, shape), Tensor(oracle_memory_.back(), type, shape)};
}

Twin KernelTest::of(const std::vector<double>& values, const Shape& shape, DType type) {
  ensure(static_cast<std::int64_t>(values.size()) == shape.numel(), "values do not fit the shape");
  const Twin twin = allocate(shape, type);
  from_doubles(values, twin.oracle);
  device_->copy(*stream_, twin.oracle, twin.device);
  stream_->synchronize();
  return twin;
}

Twin KernelTest::random(const Shape& shape, DType type, double scale) {
  std::normal_distribution<double> normal(0.0, scale);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  std::ranges::generate(values, [&] { return normal(generator_); });
  return of(values, shape, type);
}

Twin KernelTest::poison(const Shape& shape, DType type) {
  const bool floating = roundoff(type) > 0.0;
  return of(std::vector<double>(static_cast<std::size_t>(shape.numel()),
                                floating ? std::numeric_limits<double>::quiet_NaN() : 77.0),
            shape, type);
}

std::vector<double> KernelTest::values(const Twin& twin) {
  return download(*device_, *stream_, twin.device);
}

std::vector<double> KernelTest::oracle_values(const Twin& twin) const {
  return download(*oracle_, *oracle_stream_, twin.oracle);
}

void KernelTest::expect_close(const Twin& twin, double ulps, const std::vector<double>& magnitude,
                              const std::string& what) {
  const std::vector<double> got = values(twin), want = oracle_values(twin);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double size = magnitude.size() == 1 ? magnitude[0] : magnitude.at(i);
    const double tolerance =
        2.0 * roundoff(twin.device.dtype) * std::abs(want[i]) + ulps * roundoff(sum()) * size;
    // Written so that NaN fails, unless it is wanted.
    if (!(std::abs(got[i] - want[i]) <= tolerance) &&
        !(std::isnan(got[i]) && std::isnan(want[i]))) {
      ADD_FAILURE() << what << ": element " << i << " of " << twin.device.shape.to_string()
                    << " is " << got[i] << ", the reference " << want[i] << ", tolerance "
                    << tolerance;
      return;
    }
  }
}

void KernelTest::expect_values(const Twin& twin, const std::vector<double>& want,
                               double tolerance) {
  const std::vector<double> got = values(twin);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
  }
}

}  // namespace tandem::testing
