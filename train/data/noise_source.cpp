#include "train/data/noise_source.h"

#include <algorithm>

#include "core/error.h"
#include "core/parallel_for.h"
#include "core/philox.h"
#include "train/data/step_rule.h"

namespace tandem {
namespace {

constexpr std::int64_t kPicksPerDraw = 8;  // 128 bits in picks of 16
// Streams of RandomUse::kSynthetic; the synthetic corpus uses others.
constexpr std::uint32_t kInputStream = 16;
constexpr std::uint32_t kExpectedStream = 17;
constexpr std::uint32_t kPoolStream = 18;

template <typename T>
void fill_pool(std::uint64_t seed, T* pool) {
  for (std::int64_t i = 0; i < NoiseSource::kPoolSize; i += 4) {
    const auto normals =
        philox_normals(seed, RandomUse::kSynthetic, kPoolStream, static_cast<std::uint64_t>(i / 4));
    std::transform(normals.begin(), normals.end(), pool + i,
                   [](double normal) { return static_cast<T>(normal); });
  }
}

/// Rows [begin, end) of `out` [rows, hidden]: column c of a row takes pick c % 8 of block
/// key * ceil(hidden / 8) + c / 8.
template <typename T>
void fill_rows(std::uint64_t seed, std::uint32_t stream, const T* pool, const std::int64_t* keys,
               std::int64_t begin, std::int64_t end, const Tensor& out) {
  const std::int64_t hidden = out.dim(1);
  const std::int64_t draws = (hidden + kPicksPerDraw - 1) / kPicksPerDraw;
  for (std::int64_t r = begin; r < end; ++r) {
    T* const row = out.as<T>() + r * hidden;
    for (std::int64_t d = 0; d < draws; ++d) {
      const PhiloxBlock draw = philox_draw(seed, RandomUse::kSynthetic, stream,
                                           static_cast<std::uint64_t>(keys[r] * draws + d));
      const std::int64_t first = d * kPicksPerDraw;
      const std::int64_t columns = std::min(kPicksPerDraw, hidden - first);
      for (std::int64_t c = 0; c < columns; ++c) {
        row[first + c] = pool[(draw.x[c / 2] >> (16 * (c % 2))) & 0xffffu];
      }
    }
  }
}

/// Calls f with a null pointer of the element type.
template <typename F>
void with_type(DType type, const F& f) {
  switch (type) {
    case DType::kF64:
      return f(static_cast<double*>(nullptr));
    case DType::kF32:
      return f(static_cast<float*>(nullptr));
    case DType::kBF16:
      return f(static_cast<BFloat16*>(nullptr));
    case DType::kF16:
      return f(static_cast<Float16*>(nullptr));
    default:
      throw InternalError("input and expected output are floating-point");
  }
}

}  // namespace

NoiseSource::NoiseSource(const Config& config, const Layout& layout, DType storage, int threads)
    : seed_(config.seed),
      train_(config.train),
      layout_(layout),
      seq_len_(config.data.seq_len),
      hidden_(config.model.hidden),
      rows_(max_rows(config)),
      storage_(storage),
      threads_(threads),
      buffer_bytes_(data_buffer_bytes(config, storage)),
      buffers_(static_cast<std::size_t>(config.accumulation())),
      step_(buffers_.size()) {
  pool_.resize(static_cast<std::size_t>(kPoolSize) * size_of(storage));
  with_type(storage, [&]<typename T>(T*) { fill_pool(seed_, reinterpret_cast<T*>(pool_.data())); });
}

void NoiseSource::allocate() {
  const auto bytes = static_cast<std::size_t>(rows_ * hidden_) * size_of(storage_);
  for (std::size_t m = 0; m < buffers_.size(); ++m) {
    Buffers& buffers = buffers_[m];
    buffers.input.resize(bytes);
    buffers.expected.resize(bytes);
    buffers.row_keys.assign(static_cast<std::size_t>(rows_), -1);
    // Every position is kept, so the padding is the same rows in every step: zero from the start.
    MicroBatch& batch = step_[m];
    batch.rows = rows_;
    batch.tokens = train_.micro_batch * seq_len_;
    batch.input = Tensor(buffers.input.data(), storage_, {rows_, hidden_});
    batch.expected = Tensor(buffers.expected.data(), storage_, {rows_, hidden_});
    batch.row_keys = Tensor(buffers.row_keys.data(), DType::kI64, {rows_});
  }
}

std::span<const MicroBatch> NoiseSource::fetch_step(std::int64_t consumed_samples) {
  if (step_.front().input.absent()) {
    allocate();
  }
  for (std::size_t m = 0; m < step_.size(); ++m) {
    const MicroBatch& batch = step_[m];
    const SampleRange positions =
        micro_batch_positions(train_, layout_, consumed_samples, static_cast<std::int64_t>(m));
    std::int64_t* const keys = buffers_[m].row_keys.data();
    for (std::int64_t r = 0; r < batch.tokens; ++r) {
      keys[r] = positions.first * seq_len_ + r;
    }
    with_type(batch.input.dtype, [&]<typename T>(T*) {
      const auto* pool = reinterpret_cast<const T*>(pool_.data());
      parallel_for(parallel_parts(threads_, batch.tokens, 1), batch.tokens, 1,
                   [&](std::int64_t begin, std::int64_t end, int) {
                     fill_rows(seed_, kInputStream, pool, keys, begin, end, batch.input);
                     fill_rows(seed_, kExpectedStream, pool, keys, begin, end, batch.expected);
                   });
    });
  }
  return step_;
}

const MicroBatch& NoiseSource::fetch_evaluation(std::int64_t) {
  throw InternalError("nothing is held out of generated samples");
}

std::string NoiseSource::describe() const {
  return "normal(0, 1) input and expected output of " + std::to_string(hidden_) +
         " values, a new sample of " + std::to_string(seq_len_) + " positions each time";
}

}  // namespace tandem
