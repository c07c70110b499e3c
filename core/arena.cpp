#include "core/arena.h"

#include <numeric>

namespace tandem {

namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::string_view name_of(MemoryCategory category) {
  constexpr std::array<std::string_view, kMemoryCategories> kNames = {
      "weights", "main grads", "optimizer", "activations", "communication", "workspace"};
  return kNames[static_cast<std::size_t>(category)];
}

Arena::Arena(Device& device, const Arena& measured) : device_(&device) {
  capacity_ = measured.used_;
  allocations_.reserve(measured.allocations_.size());
  for (std::size_t c = 0; c < kMemoryCategories; ++c) {
    if (capacity_[c] > 0) {
      base_[c] = static_cast<std::byte*>(device.allocate(capacity_[c]));
    }
  }
}

Arena::~Arena() {
  for (std::byte* base : base_) {
    if (base != nullptr) {
      device_->deallocate(base);
    }
  }
}

Tensor Arena::allocate(MemoryCategory category, std::string_view name, DType dtype,
                       const Shape& shape) {
  const auto c = static_cast<std::size_t>(category);
  const std::size_t bytes = aligned(static_cast<std::size_t>(shape.numel()) * size_of(dtype));
  std::byte* memory = nullptr;
  if (!measuring()) {
    if (used_[c] + bytes > capacity_[c]) {
      throw InternalError("arena: " + std::string(name) + " asks for more " +
                          std::string(name_of(category)) + " than was measured");
    }
    memory = base_[c] + used_[c];
  }
  used_[c] += bytes;
  allocations_.push_back({category, std::string(name), bytes});
  return {memory, dtype, shape};
}

std::size_t Arena::total() const {
  return std::accumulate(used_.begin(), used_.end(), std::size_t{0});
}

}  // namespace tandem
