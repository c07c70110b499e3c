#include "tests/train/data_test_util.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

namespace tandem::testing {

TextFile::TextFile(std::string_view bytes) : path_("/tmp/tandem_text_XXXXXX") {
  const int descriptor = ::mkstemp(path_.data());
  std::FILE* file = descriptor < 0 ? nullptr : ::fdopen(descriptor, "wb");
  if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() ||
      std::fclose(file) != 0) {
    throw std::runtime_error("cannot write " + path_);
  }
}

TextFile::~TextFile() { ::unlink(path_.c_str()); }

Config text_config(const std::string& path, std::int64_t seq_len) {
  Config config;
  config.model.context = 3;
  config.data.path = path;
  config.data.seq_len = seq_len;
  config.data.shuffle = false;
  config.data.valid_fraction = 0;
  config.train.micro_batch = 1;
  config.train.global_batch = 1;
  return config;
}

std::vector<std::int64_t> samples_of(const MicroBatch& batch, std::int64_t seq_len) {
  std::vector<std::int64_t> samples;
  for (const std::int64_t key : batch.row_keys.span<std::int64_t>()) {
    if (key >= 0 && (samples.empty() || samples.back() != key / seq_len)) {
      samples.push_back(key / seq_len);
    }
  }
  return samples;
}

std::string rows_as_text(const MicroBatch& batch) {
  const auto letter = [](std::int32_t id) {
    return id < 0 ? '.' : id == '\n' ? '/' : static_cast<char>(id);
  };
  const auto ids = batch.ids.span<std::int32_t>();
  const auto context = static_cast<std::size_t>(batch.ids.dim(1));
  std::string text;
  for (std::size_t r = 0; r < static_cast<std::size_t>(batch.rows); ++r) {
    const std::int32_t target = batch.targets.span<std::int32_t>()[r];
    if (target < 0) {
      continue;
    }
    text += std::to_string(batch.row_keys.span<std::int64_t>()[r]) + ": ";
    for (std::size_t j = context; j-- > 0;) {
      text += letter(ids[r * context + j]);
    }
    text += std::string(" -> ") + letter(target) + "\n";
  }
  return text;
}

}  // namespace tandem::testing
