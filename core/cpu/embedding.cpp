#include "core/cpu/dispatch.h"
#include "core/cpu/kernels.h"
#include "core/embedding_order.h"

// From here on this file is compiled once for each target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/embedding.cpp"
#include "hwy/foreach_target.h"
#include "core/cpu/vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

void EmbeddingForwardRows(const EmbeddingForward& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t context = args.ids.dim(1);
  const std::int64_t vocab = args.table.dim(1), hidden = args.table.dim(2);
  visit_storage(args.y.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* table = args.table.as<T>();
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int32_t* ids = args.ids.as<std::int32_t>() + r * context;
      T* y = args.y.as<T>() + r * hidden;
      for_vectors(0, hidden, [&](std::int64_t i, auto part) HWY_ATTR {
        V sum = hn::Zero(kFloats);
        for (std::int64_t j = 0; j < context; ++j) {
          const std::int64_t v = ids[j] - args.vocab_start;
          if (ids[j] >= 0 && v >= 0 && v < vocab) {
            sum = hn::Add(sum, load(table + (j * vocab + v) * hidden + i, part));
          }
        }
        store(sum, y + i, part);
      });
    }
  });
}

/// Table rows [begin, end) of slot `slot_index`.
void EmbeddingBackwardRows(const EmbeddingBackward& args, const EmbeddingSlot& slot,
                           std::int64_t slot_index, std::int64_t begin, std::int64_t end) {
  const std::int64_t vocab = args.d_table.dim(1), hidden = args.d_table.dim(2);
  visit_storage(args.d_y.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* d_y = args.d_y.as<T>();
    for (std::int64_t v = begin; v < end; ++v) {
      if (args.write == Write::kAccumulate && slot.begin(v) == slot.end(v)) {
        continue;
      }
      float* out = args.d_table.as<float>() + (slot_index * vocab + v) * hidden;
      for_vectors(0, hidden, [&](std::int64_t i, auto part) HWY_ATTR {
        V sum = hn::Zero(kFloats);
        for (std::int32_t s = slot.begin(v); s < slot.end(v); ++s) {
          sum = hn::Add(sum, load(d_y + slot.rows[s] * hidden + i, part));
        }
        if (args.write == Write::kAccumulate) {
          sum = hn::Add(load(out + i, part), sum);
        }
        store(sum, out + i, part);
      });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(EmbeddingForwardRows);
HWY_EXPORT(EmbeddingBackwardRows);

void embedding_forward(const EmbeddingForward& args, int threads) {
  split(threads, args.y.dim(0), args.y.dim(1) * args.ids.dim(1), 1,
        [&](std::int64_t begin, std::int64_t end, int) {
          HWY_DYNAMIC_DISPATCH(EmbeddingForwardRows)(args, begin, end);
        });
}

void embedding_backward(const EmbeddingBackward& args, int threads) {
  const std::int64_t rows = args.ids.dim(0), context = args.ids.dim(1);
  const std::int64_t vocab = args.d_table.dim(1), hidden = args.d_table.dim(2);
  for (std::int64_t j = 0; j < context; ++j) {
    const EmbeddingSlot slot =
        sort_embedding_slot(args.ids.as<std::int32_t>() + j, context, rows, args.vocab_start, vocab,
                            args.workspace.as<std::int32_t>() + j * (rows + vocab + 1));
    split(threads, vocab, hidden, 1, [&](std::int64_t begin, std::int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(EmbeddingBackwardRows)(args, slot, j, begin, end);
    });
  }
}

}  // namespace tandem::cpu
#endif
