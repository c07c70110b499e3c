// What kernel tests share: the devices that are present, and tensors that live twice, on the device
// under test and on the oracle (the reference device, fed the same stored values, computing in
// double and rounding once).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "core/device.h"

namespace tandem::testing {

struct DeviceCase {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
  Precision precision;
};
inline std::ostream& operator<<(std::ostream& out, const DeviceCase& device) {
  return out << device.name;
}

/// Every device of this build and machine, in each of its precisions.
std::vector<DeviceCase> device_cases();
/// Devices whose matmul library knows no epilogue; for tests of products.
std::vector<DeviceCase> fallback_cases();

/// Names a parameterised test after its device.
std::string case_name(const ::testing::TestParamInfo<DeviceCase>& info);

/// The unit roundoff of a floating type: half the gap above one.
double roundoff(DType type);

inline std::vector<double> doubles(std::int64_t count, double value) {
  return std::vector<double>(static_cast<std::size_t>(count), value);
}

/// The same values on both devices.
struct Twin {
  Tensor device, oracle;
  Twin slice(int dimension, std::int64_t start, std::int64_t length) const {
    return {device.slice(dimension, start, length), oracle.slice(dimension, start, length)};
  }
};

class KernelTest : public ::testing::TestWithParam<DeviceCase> {
 protected:
  KernelTest();
  ~KernelTest() override;

  DType storage() const { return GetParam().precision.storage; }
  DType main() const { return GetParam().precision.main; }
  DType sum() const { return GetParam().precision.sum; }

  /// Values rounded to `type` (or truncated to an integer).
  Twin of(const std::vector<double>& values, const Shape& shape, DType type);
  /// Normal deviates of this scale.
  Twin random(const Shape& shape, DType type, double scale = 1.0);
  /// NaN, or an absurd integer: an output that is not overwritten shows.
  Twin poison(const Shape& shape, DType type);

  /// Calls call(device, stream, at) on both devices; at(twin) is that device's tensor.
  template <typename Call>
  void run(const Call& call) {
    call(*device_, *stream_, [](const Twin& twin) { return twin.device; });
    stream_->synchronize();
    call(*oracle_, *oracle_stream_, [](const Twin& twin) { return twin.oracle; });
  }

  /// The device's values as doubles, row by row.
  std::vector<double> values(const Twin& twin);
  std::vector<double> oracle_values(const Twin& twin) const;

  /// |got - want| <= 2 roundoff(type) |want| + ulps * roundoff(sum type) * magnitude, where
  /// magnitude bounds the sum of the absolute values that were added: one number, or one for each
  /// element.
  void expect_close(const Twin& twin, double ulps, const std::vector<double>& magnitude,
                    const std::string& what = "");
  void expect_values(const Twin& twin, const std::vector<double>& want, double tolerance = 0.0);

  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }

 private:
  Twin allocate(const Shape& shape, DType type);

  std::unique_ptr<Device> device_, oracle_;
  std::unique_ptr<Stream> stream_, oracle_stream_;
  std::vector<void*> device_memory_, oracle_memory_;
  std::mt19937_64 generator_{42};
};

}  // namespace tandem::testing
