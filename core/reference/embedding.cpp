#include <algorithm>

#include "core/embedding_order.h"
#include "core/parallel_for.h"
#include "core/reference/elements.h"
#include "core/reference/kernels.h"

namespace tandem::reference {

void embedding_forward(const EmbeddingForward& args, int threads) {
  const std::int64_t context = args.ids.dim(1);
  const std::int64_t vocab = args.table.dim(1), hidden = args.table.dim(2);
  const std::int32_t* ids = args.ids.as<std::int32_t>();
  parallel_for(threads, args.y.dim(0), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < hidden; ++c) {
        double sum = 0.0;
        for (std::int64_t j = 0; j < context; ++j) {
          const std::int64_t id = ids[r * context + j];
          const std::int64_t v = id - args.vocab_start;
          if (id >= 0 && v >= 0 && v < vocab) {
            sum += load(args.table, (j * vocab + v) * hidden + c);
          }
        }
        store(args.y, r * hidden + c, sum);
      }
    }
  });
}

void embedding_backward(const EmbeddingBackward& args, int threads, HostScratch& scratch) {
  const std::int64_t rows = args.ids.dim(0), context = args.ids.dim(1);
  const std::int64_t vocab = args.d_table.dim(1), hidden = args.d_table.dim(2);
  double* sums = scratch.reserve<double>(static_cast<std::size_t>(hidden));
  for (std::int64_t j = 0; j < context; ++j) {
    const EmbeddingSlot slot =
        sort_embedding_slot(args.ids.as<std::int32_t>() + j, context, rows, args.vocab_start, vocab,
                            args.workspace.as<std::int32_t>() + j * (rows + vocab + 1));
    parallel_for(threads, hidden, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t v = 0; v < vocab; ++v) {
        if (args.write == Write::kAccumulate && slot.begin(v) == slot.end(v)) {
          continue;
        }
        std::fill(sums + begin, sums + end, 0.0);
        for (std::int32_t s = slot.begin(v); s < slot.end(v); ++s) {
          for (std::int64_t c = begin; c < end; ++c) {
            sums[c] += load(args.d_y, slot.rows[s] * hidden + c);
          }
        }
        for (std::int64_t c = begin; c < end; ++c) {
          const std::int64_t at = (j * vocab + v) * hidden + c;
          const double before = args.write == Write::kAccumulate ? load(args.d_table, at) : 0.0;
          store(args.d_table, at, before + sums[c]);
        }
      }
    });
  }
}

}  // namespace tandem::reference
