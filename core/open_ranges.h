// The ranges that a rank has open, for another thread that asks where the rank is: a watchdog
// cannot look at the stack of a thread that hangs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace tandem {

class OpenRanges {
 public:
  using Name = std::array<char, 64>;

  /// "name detail", cut to what fits. Allocates nothing.
  void push(std::string_view name, std::string_view detail) {
    const std::lock_guard lock(mutex_);
    if (depth_ < names_.size()) {
      Name& slot = names_[depth_];
      char* end = std::copy_n(name.data(), std::min(name.size(), slot.size() - 1), slot.data());
      const auto room = static_cast<std::size_t>(slot.data() + slot.size() - 1 - end);
      if (!detail.empty() && room > 1) {
        *end++ = ' ';
        end = std::copy_n(detail.data(), std::min(detail.size(), room - 1), end);
      }
      *end = '\0';
    }
    ++depth_;
  }
  void pop() {
    const std::lock_guard lock(mutex_);
    --depth_;
  }
  /// The innermost open range that has a slot; empty for none.
  Name innermost() const {
    const std::lock_guard lock(mutex_);
    return depth_ == 0 ? Name{} : names_[std::min(depth_, names_.size()) - 1];
  }

 private:
  mutable std::mutex mutex_;
  std::array<Name, 12> names_{};  ///< deeper ones are counted only
  std::size_t depth_ = 0;
};

}  // namespace tandem
