// Every token format, to the last token and through the corpus that cuts it into samples.
#include <algorithm>
#include <memory>
#include <vector>

#include "core/error.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"
#include "train/data/corpus.h"
#include "train/data/source.h"

namespace tandem::fuzz {
namespace {

constexpr std::int64_t kSeqLen = 5;
/// An input names at most as many samples as it has tokens.
constexpr std::int64_t kSamples = 64;

void read_all(const TokenStore& store) {
  const auto starts = store.document_starts();
  ensure(starts.size() >= 2 && starts.front() == 0, "a store without a document");
  ensure(std::is_sorted(starts.begin(), starts.end()), "documents out of order");
  std::vector<std::int32_t> ids(static_cast<std::size_t>(starts.back()));
  store.read(0, ids);
  if (!ids.empty()) {
    std::int32_t last = 0;
    store.read(starts.back() - 1, {&last, 1});
    ensure(last == ids.back(), "a token that depends on how it is read");
    store.place(starts.back() - 1);
  }
}

void read_samples(const Config& config, Documents documents) {
  DataConfig data = config.data;
  data.documents = documents;
  data.seq_len = kSeqLen;
  data.valid_fraction = 0.3;
  const Corpus corpus(open_tokens(config), data, config.model.vocab_size);
  corpus.describe();
  Sample sample(kSeqLen);
  for (const Split split : {Split::kTrain, Split::kHeldOut}) {
    for (std::int64_t i = 0; i < std::min(corpus.samples(split), kSamples); ++i) {
      corpus.read(split, i, sample);
      ensure(sample.tokens.size() >= 2 && sample.tokens.size() <= kSeqLen + 1,
             "a sample without a target, or one that is too long");
    }
  }
}

void take(DataFormat format, const std::string& path) {
  Config config;
  config.data.format = format;
  config.data.path = path;
  config.model.vocab_size = 256;
  try {
    read_all(*open_tokens(config));
    for (const Documents documents : {Documents::kPadded, Documents::kPacked}) {
      try {
        read_samples(config, documents);
      } catch (const DataError&) {
      }
    }
  } catch (const DataError&) {
  }
}

void take_file(DataFormat format, Bytes bytes) {
  static MemoryFile file;
  file.set(bytes);
  take(format, file.path());
}

}  // namespace

void take_text(Bytes bytes) { take_file(DataFormat::kText, bytes); }
void take_llmc(Bytes bytes) { take_file(DataFormat::kLlmc, bytes); }
void take_npy(Bytes bytes) { take_file(DataFormat::kNpy, bytes); }
void take_raw_u16(Bytes bytes) { take_file(DataFormat::kRawU16, bytes); }

void take_megatron(Bytes bytes) {
  struct Pair {
    Pair() {
      folder.link("x.idx", index);
      folder.link("x.bin", tokens);
    }
    LinkFolder folder;
    MemoryFile index, tokens;
  };
  static Pair pair;
  if (bytes.size() < 2) {
    return;
  }
  const std::size_t wanted = bytes[0] | bytes[1] << 8;
  bytes = bytes.subspan(2);
  const std::size_t size = std::min(wanted, bytes.size());
  pair.index.set(bytes.first(size));
  pair.tokens.set(bytes.subspan(size));
  take(DataFormat::kMegatron, pair.folder.path() / "x");
}

}  // namespace tandem::fuzz
