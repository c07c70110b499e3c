#include "train/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/error.h"

namespace tandem {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::int64_t held_out_documents(std::int64_t documents, double fraction) {
  if (fraction <= 0 || documents < 2) {
    return 0;
  }
  const std::int64_t wanted = std::llround(fraction * static_cast<double>(documents));
  return std::clamp<std::int64_t>(wanted, 1, documents - 1);
}

/// "812", "4.1 M"
std::string in_words(std::int64_t count) {
  auto value = static_cast<double>(count);
  std::string_view unit;
  for (const std::string_view larger : {" k", " M", " G"}) {
    if (value < 1000) {
      break;
    }
    value /= 1000;
    unit = larger;
  }
  return unit.empty() ? std::to_string(count) : fmt::format("{:.1f}{}", value, unit);
}

}  // namespace

Sample::Sample(std::int64_t seq_len) {
  tokens.reserve(at(seq_len + 1));
  history_start.reserve(at(seq_len + 1));
}

Corpus::Corpus(std::unique_ptr<TokenStore> store, const DataConfig& config, std::int64_t vocab_size)
    : store_(std::move(store)),
      config_(config),
      vocab_size_(vocab_size),
      starts_(store_->document_starts()) {
  const auto documents = static_cast<std::int64_t>(starts_.size()) - 1;
  const std::int64_t trained = documents - held_out_documents(documents, config.valid_fraction);
  train_ = {0, trained, 0};
  held_out_ = {trained, documents, 0};

  const std::int64_t length = config.seq_len;
  if (config.documents == Documents::kPadded) {
    first_sample_.reserve(starts_.size());
    first_sample_.push_back(0);
    for (std::int64_t d = 0; d < documents; ++d) {
      const std::int64_t targets =
          std::max<std::int64_t>(starts_[at(d + 1)] - starts_[at(d)] - 1, 0);
      first_sample_.push_back(first_sample_.back() + (targets + length - 1) / length);
    }
    train_.samples = count_padded(train_);
    held_out_.samples = count_padded(held_out_);
  } else {
    train_.samples = packed_targets(train_) / length;
    held_out_.samples = (packed_targets(held_out_) + length - 1) / length;
  }
  if (train_.samples == 0) {
    refuse_no_samples();
  }
}

std::int64_t Corpus::count_padded(const Part& part) const {
  return first_sample_[at(part.last_document)] - first_sample_[at(part.first_document)];
}

std::int64_t Corpus::packed_targets(const Part& part) const {
  const std::int64_t tokens = starts_[at(part.last_document)] - starts_[at(part.first_document)];
  return std::max<std::int64_t>(tokens - 1, 0);
}

void Corpus::refuse_no_samples() const {
  const std::int64_t tokens = starts_[at(train_.last_document)];
  if (config_.documents == Documents::kPadded) {
    throw DataError(fmt::format(
        "data.path: {}: none of its {} training documents is long enough to give a target (two "
        "tokens); use a text with longer lines, or data.documents: packed",
        store_->name(), train_.last_document));
  }
  throw DataError(fmt::format(
      "data.path: {}: its {} training tokens are fewer than one packed sample (data.seq_len + 1 = "
      "{}); use a longer text, a data.seq_len of at most {}, or data.documents: padded",
      store_->name(), tokens, config_.seq_len + 1, std::max<std::int64_t>(tokens - 1, 1)));
}

void Corpus::read(Split split, std::int64_t index, Sample& sample) const {
  ensure(index >= 0 && index < samples(split), "sample outside its part of the corpus");
  if (config_.documents == Documents::kPadded) {
    read_padded(part(split), index, sample);
  } else {
    read_packed(part(split), index, sample);
  }
}

void Corpus::read_padded(const Part& part, std::int64_t index, Sample& sample) const {
  const std::int64_t number = first_sample_[at(part.first_document)] + index;
  // The last document whose first sample is not after this one; documents without any are skipped,
  // since the next document starts at the same number.
  const auto document = at(std::upper_bound(first_sample_.begin(), first_sample_.end(), number) -
                           first_sample_.begin() - 1);
  const std::int64_t begin =
      starts_[document] + (number - first_sample_[document]) * config_.seq_len;
  read_tokens(begin, std::min(config_.seq_len + 1, starts_[document + 1] - begin), sample);
  sample.history_start.assign(sample.tokens.size(), 0);
}

void Corpus::read_packed(const Part& part, std::int64_t index, Sample& sample) const {
  const std::int64_t begin = starts_[at(part.first_document)] + index * config_.seq_len;
  const std::int64_t end = starts_[at(part.last_document)];
  const std::int64_t count = std::min(config_.seq_len + 1, end - begin);
  read_tokens(begin, count, sample);

  auto next = std::upper_bound(starts_.begin(), starts_.end(), begin);
  std::int64_t start = 0;
  sample.history_start.clear();
  for (std::int64_t t = 0; t < count; ++t) {
    for (; begin + t == *next; ++next) {  // more than once where documents are empty
      start = t;
    }
    sample.history_start.push_back(static_cast<std::int32_t>(start));
  }
}

void Corpus::read_tokens(std::int64_t begin, std::int64_t count, Sample& sample) const {
  sample.tokens.resize(at(count));
  store_->read(begin, sample.tokens);
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int32_t id = sample.tokens[at(t)];
    if (id < 0 || id >= vocab_size_) {
      throw DataError(fmt::format(
          "{}: token {} is not in [0, model.vocab_size = {}); use the vocabulary that the data was "
          "made with",
          store_->place(begin + t), id, vocab_size_));
    }
  }
}

std::string Corpus::describe() const {
  return fmt::format("{}: {} documents, {} tokens, {} samples, {} held out", store_->name(),
                     held_out_.last_document, in_words(starts_.back()), train_.samples,
                     held_out_.samples);
}

}  // namespace tandem
