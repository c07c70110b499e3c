#include "train/data/binary_tokens.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <regex>

#include "core/error.h"
#include "train/data/llmc_format.h"

namespace tandem {
namespace {

constexpr std::int64_t kReadBytes = 8192;

constexpr std::array<unsigned char, 9> kMegatronMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr std::int64_t kMegatronHeader = 34;

constexpr std::array<unsigned char, 6> kNpyMagic = {0x93, 'N', 'U', 'M', 'P', 'Y'};
constexpr std::int64_t kLongestNpyHeader = 1 << 16;
/// Without its padding.
constexpr std::size_t kLongestNpyText = 1024;

[[noreturn]] void refuse(const DataFile& file, const std::string& what) {
  throw DataError("data.path: '" + file.path() + "' " + what);
}

/// A little-endian number at byte `offset`; the file has been held against its size.
template <typename T>
T number_at(const DataFile& file, std::int64_t offset) {
  std::array<unsigned char, sizeof(T)> bytes;
  file.read(offset, bytes);
  return std::bit_cast<T>(bytes);
}

std::int64_t integer(const unsigned char* bytes, const ItemType& type) {
  std::uint64_t value = 0;
  for (int i = 0; i < type.bytes; ++i) {
    value = value << 8 | bytes[type.big_endian ? i : type.bytes - 1 - i];
  }
  const int unused = 64 - 8 * type.bytes;
  return type.is_signed ? static_cast<std::int64_t>(value << unused) >> unused
                        : static_cast<std::int64_t>(value);
}

/// A token as the loader takes it: what no int32 holds is no id, and stays none.
std::int32_t as_token(std::int64_t value) {
  return value >= 0 && value <= INT32_MAX ? static_cast<std::int32_t>(value) : -1;
}

BinaryTokens::Run open_llmc_shard(const std::string& path) {
  auto file = std::make_unique<DataFile>(path);
  if (file->size() < kLlmcHeader) {
    refuse(*file, fmt::format("has {} bytes; the header of a llm.c shard alone has {}",
                              file->size(), kLlmcHeader));
  }
  const auto magic = number_at<std::int32_t>(*file, 0);
  const auto version = number_at<std::int32_t>(*file, 4);
  const std::int64_t count = number_at<std::int32_t>(*file, 8);
  if (magic == kLlmcEvaluation) {
    refuse(*file, "is a llm.c evaluation file (magic 20240522), not training tokens");
  }
  if (magic != kLlmcGpt2.magic && magic != kLlmcLlama3.magic) {
    refuse(*file, fmt::format("is no llm.c shard: it begins with {}, not with 20240520 (16-bit "
                              "tokens) or 20240801 (32-bit tokens); set data.format",
                              magic));
  }
  const LlmcKind& kind = magic == kLlmcGpt2.magic ? kLlmcGpt2 : kLlmcLlama3;
  const ItemType type{.bytes = kind.token_bytes};
  if (version != kind.version) {
    refuse(*file,
           fmt::format("has version {} where shards of this magic have {}", version, kind.version));
  }
  if (count < 1 || file->size() != kLlmcHeader + count * type.bytes) {
    refuse(*file, fmt::format("says it holds {} tokens, which makes {} bytes, and has {}", count,
                              kLlmcHeader + count * type.bytes, file->size()));
  }
  return {std::move(file), type, kLlmcHeader, count};
}

/// The integer types of Megatron-LM's DType codes.
ItemType megatron_type(const DataFile& index, int code) {
  switch (code) {
    case 1:
      return {.bytes = 1};
    case 2:
      return {.bytes = 1, .is_signed = true};
    case 3:
      return {.bytes = 2, .is_signed = true};
    case 4:
      return {.bytes = 4, .is_signed = true};
    case 5:
      return {.bytes = 8, .is_signed = true};
    case 8:
      return {.bytes = 2};
    default:
      refuse(index, fmt::format("says its tokens have type {}{}, not 1 to 5 or 8 (integers)", code,
                                code == 6 || code == 7 ? " (floating-point numbers)" : ""));
  }
}

/// The three fields of a .npy header, a Python dict literal.
struct NpyHeader {
  std::string descr, order, shape;
};

/// Value text from `at` to the comma or brace that ends it, outside of quotes and parentheses;
/// `at` then stands there, or at the end of `text`.
std::string npy_value(const std::string& text, std::size_t& at) {
  const std::size_t start = at;
  int depth = 0;
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\'') {
      quoted = !quoted;
    } else if (!quoted && depth == 0 && (c == ',' || c == '}')) {
      break;
    } else if (!quoted) {
      depth += (c == '(') - (c == ')');
    }
  }
  std::string value = text.substr(start, at - start);
  value.erase(value.find_last_not_of(' ') + 1);
  return value.erase(0, value.find_first_not_of(' '));
}

/// In one pass: a search that goes back would take seconds for a hostile kilobyte.
NpyHeader parse_npy(const DataFile& file, std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  NpyHeader header;
  bool good = text.size() <= kLongestNpyText && text.starts_with('{') && text.ends_with('}');
  for (std::size_t at = 1; good && at < text.size(); ++at) {
    const std::size_t colon = text.find(':', at);
    if (colon == std::string::npos) {
      good = text.find_first_not_of(' ', at) == text.size() - 1;  // a comma before the brace
      break;
    }
    std::string key = text.substr(at, colon - at);
    key.erase(key.find_last_not_of(' ') + 1).erase(0, key.find_first_not_of(' '));
    std::string* const value = key == "'descr'"           ? &header.descr
                               : key == "'fortran_order'" ? &header.order
                               : key == "'shape'"         ? &header.shape
                                                          : nullptr;
    good = value != nullptr && value->empty();
    if (good) {
      at = colon + 1;
      *value = npy_value(text, at);
      good = at < text.size() && (text[at] == ',' || at + 1 == text.size());
    }
  }
  if (!good || header.descr.empty() || header.order.empty() || header.shape.empty()) {
    refuse(file, "has a .npy header that is not {descr, fortran_order, shape}: " +
                     text.substr(0, kLongestNpyText));
  }
  return header;
}

/// "'<u2'" -> 2 bytes, unsigned, little-endian.
ItemType npy_type(const DataFile& file, const std::string& descr) {
  static const std::regex kType(R"('([<>|=])([ui])([1248])')");
  std::smatch match;
  if (!std::regex_match(descr, match, kType)) {
    refuse(file, fmt::format("holds numbers of type {}; tokens are integers: convert them with "
                             "array.astype('uint16') or 'int32'",
                             descr));
  }
  return {
      .bytes = std::stoi(match[3]), .is_signed = match[2] == "i", .big_endian = match[1] == ">"};
}

}  // namespace

BinaryTokens::BinaryTokens(std::string name, std::vector<Run> runs,
                           std::vector<std::int64_t> starts)
    : name_(std::move(name)), runs_(std::move(runs)), starts_(std::move(starts)) {
  first_.push_back(0);
  for (const Run& run : runs_) {
    first_.push_back(first_.back() + run.count);
  }
  if (starts_.empty()) {
    starts_ = first_;
  }
}

std::size_t BinaryTokens::run_of(std::int64_t index) const {
  return static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), index) -
                                  first_.begin() - 1);
}

void BinaryTokens::read(std::int64_t begin, std::span<std::int32_t> out) const {
  std::array<unsigned char, kReadBytes> bytes;
  while (!out.empty()) {
    const std::size_t r = run_of(begin);
    const Run& run = runs_.at(r);
    const std::int64_t within = begin - first_[r];
    const std::int64_t count = std::min(
        {static_cast<std::int64_t>(out.size()), run.count - within, kReadBytes / run.type.bytes});
    run.file->read(run.offset + within * run.type.bytes,
                   std::span(bytes).first(static_cast<std::size_t>(count * run.type.bytes)));
    for (std::int64_t i = 0; i < count; ++i) {
      out[static_cast<std::size_t>(i)] =
          as_token(integer(bytes.data() + i * run.type.bytes, run.type));
    }
    out = out.subspan(static_cast<std::size_t>(count));
    begin += count;
  }
}

std::string BinaryTokens::place(std::int64_t index) const {
  const std::size_t r = run_of(index);
  const Run& run = runs_.at(r);
  const std::int64_t within = index - first_[r];
  return fmt::format("{} token {} (byte {})", run.file->path(), within,
                     run.offset + within * run.type.bytes);
}

std::unique_ptr<TokenStore> open_llmc(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {  // sorted by name
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  if (paths.empty()) {
    paths.push_back(pattern);  // which then says why it cannot be opened
  }
  std::vector<BinaryTokens::Run> runs;
  for (const std::string& path : paths) {
    runs.push_back(open_llmc_shard(path));
  }
  const std::string name = runs.size() == 1
                               ? "llm.c " + paths.front()
                               : fmt::format("llm.c {} ({} files)", pattern, runs.size());
  return std::make_unique<BinaryTokens>(name, std::move(runs));
}

std::unique_ptr<TokenStore> open_megatron(const std::string& path) {
  std::string prefix = path;
  for (const char* ending : {".idx", ".bin"}) {
    if (prefix.ends_with(ending)) {
      prefix.resize(prefix.size() - 4);
      break;
    }
  }
  const DataFile index(prefix + ".idx");
  auto tokens = std::make_unique<DataFile>(prefix + ".bin");
  std::array<unsigned char, kMegatronMagic.size()> magic{};
  if (index.size() >= kMegatronHeader) {
    index.read(0, magic);
  }
  if (magic != kMegatronMagic) {
    refuse(index, "is no Megatron-LM index: it does not begin with MMIDIDX and two zero bytes");
  }
  if (const auto version = number_at<std::uint64_t>(index, 9); version != 1) {
    refuse(index, fmt::format("has version {}; this program reads version 1", version));
  }
  const ItemType type = megatron_type(index, number_at<std::uint8_t>(index, 17));
  const auto sequences = number_at<std::uint64_t>(index, 18);
  const auto boundaries = number_at<std::uint64_t>(index, 26);
  const auto size = static_cast<std::uint64_t>(index.size());
  // Held against the file before any of it is multiplied or allocated.
  if (sequences > size || boundaries > size) {
    refuse(index, fmt::format("says it holds {} sequences and {} document boundaries, and has {} "
                              "bytes",
                              sequences, boundaries, size));
  }
  const std::uint64_t least = kMegatronHeader + 12 * sequences + 8 * boundaries;
  if (size != least && size != least + sequences) {
    refuse(index, fmt::format("has {} bytes where {} sequences and {} document boundaries take {}",
                              size, sequences, boundaries, least));
  }
  if (sequences == 0 || boundaries < 2) {
    refuse(index, "holds no documents");
  }
  const auto read_all = [&]<typename T>(std::int64_t offset, std::uint64_t count, T) {
    std::vector<T> values(count);
    index.read(offset, {reinterpret_cast<unsigned char*>(values.data()), count * sizeof(T)});
    return values;
  };
  const auto s = static_cast<std::int64_t>(sequences);
  const auto lengths = read_all(kMegatronHeader, sequences, std::int32_t{});
  const auto offsets = read_all(kMegatronHeader + 4 * s, sequences, std::int64_t{});
  const auto documents = read_all(kMegatronHeader + 12 * s, boundaries, std::int64_t{});
  std::vector<std::int64_t> first(1, 0);  // token of each sequence
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || offsets[i] != first.back() * type.bytes) {
      refuse(index, fmt::format("places sequence {} of {} tokens at byte {} of the .bin, where {} "
                                "was expected",
                                i, lengths[i], offsets[i], first.back() * type.bytes));
    }
    first.push_back(first.back() + lengths[i]);
  }
  if (tokens->size() < first.back() * type.bytes) {
    refuse(*tokens, fmt::format("has {} bytes, and its index names {} tokens in {}", tokens->size(),
                                first.back(), first.back() * type.bytes));
  }
  std::vector<std::int64_t> starts;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::int64_t least_here = i == 0 ? 0 : documents[i - 1];
    if (documents[i] < least_here || documents[i] > s || (i == 0 && documents[i] != 0)) {
      refuse(index,
             fmt::format("says document {} begins at sequence {} of {}", i, documents[i], s));
    }
    starts.push_back(first[static_cast<std::size_t>(documents[i])]);
  }
  if (documents.back() != s) {
    refuse(index, fmt::format("ends its last document at sequence {} of {}", documents.back(), s));
  }
  std::vector<BinaryTokens::Run> runs;
  runs.push_back({std::move(tokens), type, 0, first.back()});
  return std::make_unique<BinaryTokens>("Megatron " + prefix, std::move(runs), std::move(starts));
}

std::unique_ptr<TokenStore> open_npy(const std::string& path) {
  auto file = std::make_unique<DataFile>(path);
  std::array<unsigned char, 12> head{};
  const auto available = static_cast<std::size_t>(std::min<std::int64_t>(file->size(), 12));
  file->read(0, std::span(head).first(available));
  if (available < head.size() || !std::equal(kNpyMagic.begin(), kNpyMagic.end(), head.begin())) {
    refuse(*file, "is no .npy file: it does not begin with \\x93NUMPY");
  }
  const int version = head[6];
  if (version < 1 || version > 3) {
    refuse(*file, fmt::format("has .npy format {}.{}; 1.0 to 3.0 are known", version, head[7]));
  }
  const std::int64_t start = version == 1 ? 10 : 12;
  const std::int64_t length =
      version == 1 ? head[8] | head[9] << 8 : std::int64_t{number_at<std::uint32_t>(*file, 8)};
  if (length > kLongestNpyHeader || start + length > file->size()) {
    refuse(*file,
           fmt::format("says its header has {} bytes, and has {} in all", length, file->size()));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  file->read(start, {reinterpret_cast<unsigned char*>(text.data()), text.size()});
  const NpyHeader header = parse_npy(*file, text);
  const ItemType type = npy_type(*file, header.descr);
  static const std::regex kVector(R"(\(\s*(\d{1,18})\s*,\s*\))");
  std::smatch match;
  if (!std::regex_match(header.shape, match, kVector)) {
    refuse(*file, fmt::format("has shape {}; tokens are one-dimensional: save array.reshape(-1)",
                              header.shape));
  }
  const std::int64_t count = std::stoll(match[1]);
  const std::int64_t there = file->size() - start - length;
  if (count < 1 || count > there / type.bytes || count * type.bytes != there) {
    refuse(*file,
           fmt::format("says it holds {} numbers of {} bytes, and {} bytes follow its header",
                       count, type.bytes, there));
  }
  std::vector<BinaryTokens::Run> runs;
  runs.push_back({std::move(file), type, start + length, count});
  return std::make_unique<BinaryTokens>("npy " + path, std::move(runs));
}

std::unique_ptr<TokenStore> open_raw_u16(const std::string& path) {
  auto file = std::make_unique<DataFile>(path);
  if (file->size() % 2 != 0) {
    refuse(*file,
           fmt::format("has {} bytes, an odd number: these are no 16-bit tokens", file->size()));
  }
  if (file->size() >= kLlmcHeader) {
    const auto magic = number_at<std::int32_t>(*file, 0);
    if (magic == kLlmcGpt2.magic || magic == kLlmcLlama3.magic || magic == kLlmcEvaluation) {
      refuse(*file, "begins with the magic number of a llm.c shard: set data.format: llmc");
    }
  }
  std::vector<BinaryTokens::Run> runs;
  const std::int64_t count = file->size() / 2;
  runs.push_back({std::move(file), {.bytes = 2}, 0, count});
  return std::make_unique<BinaryTokens>("raw_u16 " + path, std::move(runs));
}

}  // namespace tandem
