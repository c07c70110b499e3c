#include "core/cuda/kernel.cuh"
#include "core/cuda/kernels.h"

namespace tandem::cuda {
namespace {

/// The row of this shard's table that an id names, or -1.
__device__ std::int64_t local_id(std::int64_t id, std::int64_t vocab_start, std::int64_t vocab) {
  const std::int64_t local = id - vocab_start;
  return id >= 0 && local >= 0 && local < vocab ? local : -1;
}

template <typename T>
struct Gather {
  const std::int32_t* ids;
  const T* table;
  T* y;
  std::int64_t context, vocab, hidden, vocab_start;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    const Place place = place_of(i, hidden);
    Pack<float, N> sum;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sum.v[k] = 0.0f;
    }
    for (std::int64_t j = 0; j < context; ++j) {
      const std::int64_t v = local_id(ids[place.row * context + j], vocab_start, vocab);
      if (v >= 0) {
        const Pack<float, N> values = load<N>(table + (j * vocab + v) * hidden + place.column);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          sum.v[k] += values.v[k];
        }
      }
    }
    store(y + i, sum);
  }
};

struct Slots {
  const std::int32_t* ids;
  std::int32_t* workspace;
  std::int64_t rows, context, vocab, vocab_start;

  __device__ __host__ std::int64_t stride() const { return rows + vocab + 1; }
};

/// core/embedding_order.h's counting sort, a block for each slot. Counts are integers, so the order
/// in which they are added does not show. Rows are placed a tile at a time: within a tile, a row's
/// place is the number of earlier rows with its id.
__global__ void __launch_bounds__(kThreads) sort_slots(Slots a) {
  __shared__ std::int32_t tile[kThreads];
  __shared__ std::int32_t sums[kThreads];
  const std::int64_t slot = blockIdx.x;
  std::int32_t* ends = a.workspace + slot * a.stride();
  std::int32_t* order = ends + a.vocab;
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const auto id_of = [&](std::int64_t row) {
    return row < a.rows ? local_id(a.ids[row * a.context + slot], a.vocab_start, a.vocab)
                        : std::int64_t{-1};
  };

  for (std::int64_t v = t; v < a.vocab; v += threads) {
    ends[v] = 0;
  }
  __syncthreads();
  for (std::int64_t row = t; row < a.rows; row += threads) {
    if (const std::int64_t v = id_of(row); v >= 0) {
      atomicAdd(&ends[v], 1);
    }
  }
  __syncthreads();

  // Counts become begins: each thread adds up its own stretch, then what lies before it.
  const std::int64_t stretch = (a.vocab + threads - 1) / threads;
  const std::int64_t begin = stretch * t < a.vocab ? stretch * t : a.vocab;
  const std::int64_t end = begin + stretch < a.vocab ? begin + stretch : a.vocab;
  std::int32_t count = 0;
  for (std::int64_t v = begin; v < end; ++v) {
    count += ends[v];
  }
  sums[t] = count;
  __syncthreads();
  std::int32_t before = 0;
  for (int u = 0; u < t; ++u) {
    before += sums[u];
  }
  for (std::int64_t v = begin; v < end; ++v) {
    const std::int32_t here = ends[v];
    ends[v] = before;
    before += here;
  }

  for (std::int64_t base = 0; base < a.rows; base += threads) {
    const std::int64_t row = base + t;
    const auto v = static_cast<std::int32_t>(id_of(row));
    tile[t] = v;
    __syncthreads();
    std::int32_t earlier = 0, later = 0;
    if (v >= 0) {
      for (int u = 0; u < threads; ++u) {
        earlier += tile[u] == v && u < t ? 1 : 0;
        later += tile[u] == v && u > t ? 1 : 0;
      }
      order[ends[v] + earlier] = static_cast<std::int32_t>(row);
    }
    __syncthreads();
    if (v >= 0 && later == 0) {
      ends[v] += earlier + 1;  // begins become ends, a tile at a time; read behind the next barrier
    }
  }
}

template <typename T>
struct SumSlots {
  Slots a;
  const T* d_y;
  float* d_table;
  std::int64_t hidden;
  bool accumulate;

  template <int N>
  __device__ void operator()(std::int64_t i, Width<N>) const {
    const Place place = place_of(i, hidden);           // row: (slot, v)
    const Place entry = place_of(place.row, a.vocab);  // row: slot, column: v
    const std::int32_t* ends = a.workspace + entry.row * a.stride();
    const std::int32_t* order = ends + a.vocab;
    const std::int32_t begin = entry.column == 0 ? 0 : ends[entry.column - 1];
    const std::int32_t end = ends[entry.column];
    if (accumulate && begin == end) {
      return;
    }
    Pack<float, N> sum;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sum.v[k] = 0.0f;
    }
    for (std::int32_t s = begin; s < end; ++s) {
      const Pack<float, N> values = load<N>(d_y + order[s] * hidden + place.column);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sum.v[k] += values.v[k];
      }
    }
    if (accumulate) {
      const Pack<float, N> old = load<N>(d_table + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sum.v[k] += old.v[k];
      }
    }
    store(d_table + i, sum);
  }
};

}  // namespace

void embedding_forward(const Launch& launch, const EmbeddingForward& args) {
  visit_storage(args.table.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const Gather<T> gather{.ids = args.ids.as<std::int32_t>(),
                           .table = args.table.as<T>(),
                           .y = args.y.as<T>(),
                           .context = args.ids.dim(1),
                           .vocab = args.table.dim(1),
                           .hidden = args.table.dim(2),
                           .vocab_start = args.vocab_start};
    const bool packed =
        gather.hidden % kPack<T> == 0 && aligned_for<kPack<T>>(gather.table, gather.y);
    with_width<kPack<T>>(
        packed, [&](auto width) { for_each(launch.stream, args.y.numel(), width, gather); });
  });
}

void embedding_backward(const Launch& launch, const EmbeddingBackward& args) {
  const Slots slots{.ids = args.ids.as<std::int32_t>(),
                    .workspace = args.workspace.as<std::int32_t>(),
                    .rows = args.ids.dim(0),
                    .context = args.ids.dim(1),
                    .vocab = args.d_table.dim(1),
                    .vocab_start = args.vocab_start};
  if (args.d_table.numel() == 0) {
    return;
  }
  cuda::launch(launch.stream, {.blocks = slots.context, .threads = kThreads}, sort_slots, slots);
  visit_storage(args.d_y.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const SumSlots<T> sum{slots, args.d_y.as<T>(), args.d_table.as<float>(), args.d_table.dim(2),
                          args.write == Write::kAccumulate};
    with_width<4>(sum.hidden % 4 == 0 && aligned_for<4>(sum.d_y, sum.d_table),
                  [&](auto width) { for_each(launch.stream, args.d_table.numel(), width, sum); });
  });
}

}  // namespace tandem::cuda
