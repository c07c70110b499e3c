#include "core/cpu/dispatch.h"
#include "core/cpu/kernels.h"
#include "core/host_memory.h"
#include "core/reference/kernels.h"

// From here on this file is compiled once for each target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/convert.cpp"
#include "hwy/foreach_target.h"
#include "core/cpu/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

void ConvertRange(const Tensor& from, const Tensor& to, std::int64_t from_begin,
                  std::int64_t to_begin, std::int64_t count) {
  visit_storage(from.dtype, [&](auto* from_type) HWY_ATTR {
    visit_storage(to.dtype, [&](auto* to_type) HWY_ATTR {
      const auto* in = from.as<std::remove_pointer_t<decltype(from_type)>>() + from_begin;
      auto* out = to.as<std::remove_pointer_t<decltype(to_type)>>() + to_begin;
      for_vectors(0, count, [&](std::int64_t i, auto part) HWY_ATTR {
        store(load(in + i, part), out + i, part);
      });
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(ConvertRange);

void cast(const Tensor& from, const Tensor& to, int threads) {
  if (from.dtype == DType::kF64 || to.dtype == DType::kF64) {
    return reference::cast(from, to, threads);
  }
  split(threads, from.numel(), 1, 64, [&](std::int64_t begin, std::int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(ConvertRange)(from, to, begin, begin, end - begin);
  });
}

void convert_matrix(const Tensor& from, const Tensor& to, int threads) {
  const std::int64_t columns = from.dim(1);
  split(threads, from.dim(0), columns, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      HWY_DYNAMIC_DISPATCH(ConvertRange)
      (from, to, r * from.strides[0], r * to.strides[0], columns);
    }
  });
}

}  // namespace tandem::cpu
#endif
