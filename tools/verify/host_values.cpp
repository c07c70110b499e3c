#include "tools/verify/host_values.h"

#include <algorithm>
#include <cstddef>

namespace tandem::verify {

std::vector<double> read_values(Device& device, Stream& stream, const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  const Tensor host(bytes.data(), tensor.dtype, {tensor.numel()});
  device.copy(stream, tensor.flat(), host);
  stream.synchronize();
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  const auto convert = [&](const auto* from) {
    std::transform(from, from + values.size(), values.begin(),
                   [](auto value) { return static_cast<double>(value); });
  };
  if (tensor.dtype == DType::kI32) {
    convert(host.as<std::int32_t>());
  } else {
    visit_floating(tensor.dtype, [&](auto type) { convert(host.as<decltype(type)>()); });
  }
  return values;
}

void write_values(Device& device, Stream& stream, const Tensor& tensor,
                  const std::vector<double>& values) {
  std::vector<std::byte> bytes(tensor.bytes());
  const Tensor host(bytes.data(), tensor.dtype, {tensor.numel()});
  visit_floating(tensor.dtype, [&](auto type) {
    std::transform(values.begin(), values.end(), host.as<decltype(type)>(),
                   [](double value) { return static_cast<decltype(type)>(value); });
  });
  device.copy(stream, host, tensor.flat());
  stream.synchronize();
}

}  // namespace tandem::verify
