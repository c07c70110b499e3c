#include "train/data/source.h"

#include <numeric>

#include "train/data/binary_tokens.h"
#include "train/data/noise_source.h"
#include "train/data/synthetic.h"
#include "train/data/text.h"
#include "train/data/token_source.h"

namespace tandem {

std::unique_ptr<TokenStore> open_tokens(const Config& config) {
  switch (config.data.format) {
    case DataFormat::kText:
      return std::make_unique<TextTokens>(config.data.path, config.model.vocab_size);
    case DataFormat::kLlmc:
      return open_llmc(config.data.path);
    case DataFormat::kMegatron:
      return open_megatron(config.data.path);
    case DataFormat::kNpy:
      return open_npy(config.data.path);
    case DataFormat::kRawU16:
      return open_raw_u16(config.data.path);
    case DataFormat::kSynthetic:
      return std::make_unique<SyntheticTokens>(config.seed, config.model.vocab_size,
                                               config.data.seq_len);
  }
  throw InternalError("unknown data format");
}

std::int64_t row_multiple(const Config& config) {
  return std::lcm<std::int64_t>(64, config.parallel.tp);
}

std::int64_t max_rows(const Config& config) {
  const std::int64_t multiple = row_multiple(config);
  return (config.train.micro_batch * config.data.seq_len + multiple - 1) / multiple * multiple;
}

std::size_t data_buffer_bytes(const Config& config, DType storage) {
  const auto rows = static_cast<std::size_t>(max_rows(config));
  const auto accumulation = static_cast<std::size_t>(config.accumulation());
  if (config.model.kind == ModelKind::kFfn) {
    const std::size_t row = 2 * static_cast<std::size_t>(config.model.hidden) * size_of(storage);
    return accumulation * rows * (row + sizeof(std::int64_t)) +
           NoiseSource::kPoolSize * size_of(storage);
  }
  const std::size_t row = static_cast<std::size_t>(config.model.context + 1) * sizeof(std::int32_t);
  return (accumulation + 1) * rows * (row + sizeof(std::int64_t));  // 1: of an evaluation
}

std::unique_ptr<DataSource> make_data_source(const Config& config, const Layout& layout,
                                             const SourceOptions& options) {
  if (config.model.kind == ModelKind::kFfn) {
    return std::make_unique<NoiseSource>(config, layout, options.storage, options.threads);
  }
  auto corpus = std::make_unique<Corpus>(open_tokens(config), config.data, config.model.vocab_size);
  return std::make_unique<TokenSource>(std::move(corpus), config, layout, options.keep_masked_rows);
}

}  // namespace tandem
