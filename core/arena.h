// All memory of a run, by name and category. The same construction code runs twice: first with a
// measuring arena, which only adds up sizes, so that a run that cannot fit is refused before
// anything is allocated; then with the real one, which makes one allocation per category and never
// grows. The planner predicts the table that the arena prints.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/tensor.h"

namespace tandem {

enum class MemoryCategory {
  kWeights,        ///< what the matmuls read, in the storage type
  kMainGrads,      ///< gradients, in the main type
  kOptimizer,      ///< masters (where the weights are not themselves masters) and moments
  kActivations,    ///< what forward saves for backward
  kCommunication,  ///< buffers that only collectives need
  kWorkspace,      ///< scratch shared by all layers, and the rows of the micro-batch
};
inline constexpr std::size_t kMemoryCategories = 6;
std::string_view name_of(MemoryCategory category);

class Arena {
 public:
  struct Allocation {
    MemoryCategory category;
    std::string name;
    std::size_t bytes;
  };

  /// Measures: gives out tensors without memory.
  Arena() = default;
  /// Allocates on `device`, which outlives the arena, what `measured` counted.
  Arena(Device& device, const Arena& measured);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  bool measuring() const { return device_ == nullptr; }
  /// A zero-filled row-major tensor, 64-byte aligned. Throws InternalError if a real arena is asked
  /// for more than was measured.
  Tensor allocate(MemoryCategory category, std::string_view name, DType dtype, const Shape& shape);

  std::size_t bytes(MemoryCategory category) const {
    return used_[static_cast<std::size_t>(category)];
  }
  std::size_t total() const;
  const std::vector<Allocation>& allocations() const { return allocations_; }

 private:
  Device* device_ = nullptr;
  std::array<std::byte*, kMemoryCategories> base_{};
  std::array<std::size_t, kMemoryCategories> capacity_{};
  std::array<std::size_t, kMemoryCategories> used_{};
  std::vector<Allocation> allocations_;
};

}  // namespace tandem
