#include "train/data/noise_source.h"

#include <algorithm>

#include "core/error.h"
#include "core/parallel_for.h"
#include "core/philox.h"
#include "train/data/step_rule.h"

namespace tandem {
namespace {

// Streams of RandomUse::kSynthetic; the synthetic corpus uses others.
constexpr std::uint32_t kInputStream = 16;
constexpr std::uint32_t kExpectedStream = 17;

/// Rows [begin, end) of `out` [rows, hidden]: column c of a row is normal c % 4 of block
/// key * ceil(hidden / 4) + c / 4.
template <typename T>
void fill_rows(std::uint64_t seed, std::uint32_t stream, const std::int64_t* keys,
               std::int64_t begin, std::int64_t end, const Tensor& out) {
  const std::int64_t hidden = out.dim(1);
  const std::int64_t quads = (hidden + 3) / 4;
  for (std::int64_t r = begin; r < end; ++r) {
    T* const row = out.as<T>() + r * hidden;
    for (std::int64_t quad = 0; quad < quads; ++quad) {
      const auto normals = philox_normals(seed, RandomUse::kSynthetic, stream,
                                          static_cast<std::uint64_t>(keys[r] * quads + quad));
      const std::int64_t columns = std::min<std::int64_t>(4, hidden - 4 * quad);
      for (std::int64_t c = 0; c < columns; ++c) {
        row[4 * quad + c] = static_cast<T>(normals[static_cast<std::size_t>(c)]);
      }
    }
  }
}

void fill_rows(std::uint64_t seed, std::uint32_t stream, const std::int64_t* keys,
               std::int64_t begin, std::int64_t end, const Tensor& out) {
  switch (out.dtype) {
    case DType::kF64:
      return fill_rows<double>(seed, stream, keys, begin, end, out);
    case DType::kF32:
      return fill_rows<float>(seed, stream, keys, begin, end, out);
    case DType::kBF16:
      return fill_rows<BFloat16>(seed, stream, keys, begin, end, out);
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
      threads_(threads),
      buffers_(static_cast<std::size_t>(config.accumulation())),
      step_(buffers_.size()) {
  const std::int64_t rows = max_rows(config);
  const auto bytes = static_cast<std::size_t>(rows * hidden_) * size_of(storage);
  for (std::size_t m = 0; m < buffers_.size(); ++m) {
    Buffers& buffers = buffers_[m];
    buffers.input.resize(bytes);
    buffers.expected.resize(bytes);
    buffers.row_keys.assign(static_cast<std::size_t>(rows), -1);
    // Every position is kept, so the padding is the same rows in every step: zero from the start.
    MicroBatch& batch = step_[m];
    batch.rows = rows;
    batch.tokens = train_.micro_batch * seq_len_;
    batch.input = Tensor(buffers.input.data(), storage, {rows, hidden_});
    batch.expected = Tensor(buffers.expected.data(), storage, {rows, hidden_});
    batch.row_keys = Tensor(buffers.row_keys.data(), DType::kI64, {rows});
  }
}

std::span<const MicroBatch> NoiseSource::fetch_step(std::int64_t consumed_samples) {
  for (std::size_t m = 0; m < step_.size(); ++m) {
    const MicroBatch& batch = step_[m];
    const SampleRange positions =
        micro_batch_positions(train_, layout_, consumed_samples, static_cast<std::int64_t>(m));
    std::int64_t* const keys = buffers_[m].row_keys.data();
    for (std::int64_t r = 0; r < batch.tokens; ++r) {
      keys[r] = positions.first * seq_len_ + r;
    }
    parallel_for(parallel_parts(threads_, batch.tokens, 1), batch.tokens, 1,
                 [&](std::int64_t begin, std::int64_t end, int) {
                   fill_rows(seed_, kInputStream, keys, begin, end, batch.input);
                   fill_rows(seed_, kExpectedStream, keys, begin, end, batch.expected);
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
