// Test bodies that every kind of communicator must pass: local_test.cpp runs them on threads,
// mpi_test.cpp under mpirun. Data goes to the device and back on a stream of its own, so that a
// collective that forgets to order itself after or before that stream gives wrong numbers.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/ranks.h"

namespace tandem::test {

struct Case {
  std::string name;
  RankBody body;
};

std::vector<Case> collective_cases();
std::vector<Case> operator_cases();

/// A tensor on the device, filled and read in stream order.
template <typename T>
class OnDevice {
 public:
  OnDevice(Device& device, const Shape& shape)
      : device_(&device),
        memory_(device.allocate(static_cast<std::size_t>(shape.numel()) * sizeof(T) + 1)),
        tensor_(memory_, DTypeOf<T>::value, shape),
        host_(static_cast<std::size_t>(shape.numel())) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { device_->deallocate(memory_); }

  const Tensor& tensor() const { return tensor_; }
  void upload(Stream& stream, std::vector<T> values) {
    ensure(values.size() == host_.size(), "values and tensor differ in size");
    host_ = std::move(values);
    if (!host_.empty()) {
      device_->copy(stream, host_tensor(), tensor_.flat());
    }
  }
  std::vector<T> download(Stream& stream) {
    if (!host_.empty()) {
      device_->copy(stream, tensor_.flat(), host_tensor());
    }
    stream.synchronize();
    return host_;
  }

 private:
  Tensor host_tensor() {
    return {host_.data(), DTypeOf<T>::value, Shape{static_cast<std::int64_t>(host_.size())}};
  }

  Device* device_;
  void* memory_;
  Tensor tensor_;
  std::vector<T> host_;
};

/// "" if both are the same bits (-0 differs from 0, a NaN equals itself), else where they part.
template <typename T>
std::string difference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) {
    return "sizes " + std::to_string(a.size()) + " and " + std::to_string(b.size());
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) {
      return "at " + std::to_string(i) + ": " + std::to_string(static_cast<double>(a[i])) +
             " and " + std::to_string(static_cast<double>(b[i]));
    }
  }
  return "";
}

/// A fixed, rank-dependent stream of numbers.
inline std::uint64_t scramble(std::uint64_t seed, std::uint64_t rank, std::uint64_t i) {
  std::uint64_t z = (seed * 1000003 + rank + 1) * 0x9e3779b97f4a7c15u + i * 0xd1342543de82ef95u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace tandem::test
