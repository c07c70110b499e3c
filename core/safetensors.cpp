#include "core/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

namespace tandem {

namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

/// The format's own limit; a longer header is refused before it is read.
constexpr std::uint64_t kLongestHeader = 100'000'000;
constexpr std::size_t kHeaderAlignment = 64;
/// {name: {shape: [n]}}: nothing lies deeper.
constexpr int kDeepest = 3;

constexpr std::array<std::pair<const char*, std::uint64_t>, 15> kItemSizes = {{{"BOOL", 1},
                                                                               {"U8", 1},
                                                                               {"I8", 1},
                                                                               {"F8_E5M2", 1},
                                                                               {"F8_E4M3", 1},
                                                                               {"I16", 2},
                                                                               {"U16", 2},
                                                                               {"F16", 2},
                                                                               {"BF16", 2},
                                                                               {"I32", 4},
                                                                               {"U32", 4},
                                                                               {"F32", 4},
                                                                               {"F64", 8},
                                                                               {"I64", 8},
                                                                               {"U64", 8}}};

std::string reason() { return std::generic_category().message(errno); }

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw DataError(path.string() + ": " + what);
}

std::uint64_t item_size(const std::filesystem::path& path, const std::string& name,
                        const std::string& dtype) {
  for (const auto& [known, size] : kItemSizes) {
    if (dtype == known) {
      return size;
    }
  }
  refuse(path, fmt::format("tensor '{}' has dtype '{}', which the safetensors format does not have",
                           name, dtype));
}

void read_exactly(int descriptor, const std::filesystem::path& path, std::uint64_t offset,
                  void* out, std::uint64_t bytes) {
  auto* to = static_cast<std::byte*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      refuse(path, fmt::format("cannot be read at byte {}: {}", offset, reason()));
    }
    if (got == 0) {
      refuse(path, fmt::format("ends at byte {}, {} bytes early", offset, bytes));
    }
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
}

/// A file that is being written: whole and on the disk, or an error with the system's words.
class Output {
 public:
  explicit Output(const std::filesystem::path& path) : path_(path) {
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) {
      refuse(path_, "cannot be created: " + reason());
    }
  }
  ~Output() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(const void* data, std::uint64_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    while (bytes > 0) {
      // Linux writes at most 2 GiB at once.
      const ssize_t done = ::write(descriptor_, from, std::min<std::uint64_t>(bytes, 1u << 30));
      if (done < 0 && errno == EINTR) {
        continue;
      }
      if (done < 0) {
        refuse(path_, "cannot be written: " + reason());
      }
      from += done;
      bytes -= static_cast<std::uint64_t>(done);
    }
  }
  void finish() {
    if (::fsync(descriptor_) != 0) {
      refuse(path_, "cannot be written to the disk: " + reason());
    }
    const int closed = ::close(std::exchange(descriptor_, -1));
    if (closed != 0) {
      refuse(path_, "cannot be written to the disk: " + reason());
    }
  }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Refuses what a parser would silently accept or choke on: names given twice, and nesting.
nlohmann::json parse_header(const std::filesystem::path& path, const std::string& text) {
  std::vector<std::set<std::string>> names(kDeepest + 1);
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start)) {
      if (depth >= kDeepest) {
        refuse(path, "its header is nested deeper than a safetensors header is");
      }
      names[static_cast<std::size_t>(depth) + 1].clear();
    }
    if (event == Event::key &&
        !names[static_cast<std::size_t>(depth)].insert(parsed.get<std::string>()).second) {
      refuse(path, fmt::format("its header has '{}' twice", parsed.get<std::string>()));
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::exception& error) {
    refuse(path, fmt::format("its header is not JSON ({})", error.what()));
  }
}

SafetensorsFile::Entry parse_entry(const std::filesystem::path& path, const std::string& name,
                                   const nlohmann::json& json, std::uint64_t data_bytes) {
  const auto is_size = [](const nlohmann::json& value) { return value.is_number_unsigned(); };
  const auto shape = json.find("shape");
  const auto offsets = json.find("data_offsets");
  const auto dtype = json.find("dtype");
  if (!json.is_object() || shape == json.end() || offsets == json.end() || dtype == json.end() ||
      !dtype->is_string() || !shape->is_array() || !offsets->is_array() || offsets->size() != 2 ||
      !std::all_of(shape->begin(), shape->end(), is_size) ||
      !std::all_of(offsets->begin(), offsets->end(), is_size)) {
    refuse(path, fmt::format("the header's entry '{}' is not {{dtype, shape, data_offsets: [begin, "
                             "end]}} with sizes of 0 or more",
                             name));
  }
  SafetensorsFile::Entry entry{.dtype = dtype->get<std::string>(),
                               .shape = {},
                               .begin = (*offsets)[0].get<std::uint64_t>(),
                               .end = (*offsets)[1].get<std::uint64_t>()};
  std::uint64_t bytes = item_size(path, name, entry.dtype);
  bool fits = true;
  for (const auto& size : *shape) {
    const auto dimension = size.get<std::uint64_t>();
    fits = fits && dimension <= INT64_MAX && !__builtin_mul_overflow(bytes, dimension, &bytes);
    entry.shape.push_back(static_cast<std::int64_t>(dimension));
  }
  if (entry.begin > entry.end || entry.end > data_bytes) {
    refuse(path, fmt::format("tensor '{}' is said to be at bytes {} to {}, but there are {} bytes "
                             "of tensors: the file is cut off or its header is wrong",
                             name, entry.begin, entry.end, data_bytes));
  }
  if (!fits || bytes != entry.end - entry.begin) {
    refuse(path,
           fmt::format("tensor '{}' of type {} and shape [{}] does not fill its bytes {} to "
                       "{}",
                       name, entry.dtype, fmt::join(entry.shape, ", "), entry.begin, entry.end));
  }
  return entry;
}

/// The ranges cover the data exactly.
void check_coverage(const std::filesystem::path& path,
                    const std::map<std::string, SafetensorsFile::Entry>& entries,
                    std::uint64_t data_bytes) {
  std::vector<std::pair<SafetensorsFile::Entry, std::string>> order;
  for (const auto& [name, entry] : entries) {
    order.emplace_back(entry, name);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.begin, a.first.end) < std::pair(b.first.begin, b.first.end);
  });
  std::uint64_t covered = 0;
  for (const auto& [entry, name] : order) {
    if (entry.begin != covered) {
      refuse(path,
             fmt::format("tensor '{}' begins at byte {}, where {} was expected: ranges {}", name,
                         entry.begin, covered, entry.begin < covered ? "overlap" : "leave a gap"));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    refuse(path, fmt::format("has {} bytes behind its last tensor", data_bytes - covered));
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {  // before opening: opening a pipe would wait
    refuse(path, "cannot be opened: " + reason());
  }
  if (!S_ISREG(status.st_mode)) {
    refuse(path, "is not a regular file");
  }
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    refuse(path, "cannot be opened: " + reason());
  }
  try {
    const auto size = static_cast<std::uint64_t>(status.st_size);
    std::uint64_t header = 0;
    if (size < sizeof header) {
      refuse(path, fmt::format("has {} bytes; a safetensors file has at least 8", size));
    }
    read_exactly(descriptor_, path, 0, &header, sizeof header);
    if (header > kLongestHeader || header > size - sizeof header) {
      refuse(path, fmt::format("says its header has {} bytes, but {}", header,
                               header > kLongestHeader
                                   ? fmt::format("the format allows {}", kLongestHeader)
                                   : fmt::format("the whole file has {}", size)));
    }
    std::string text(header, '\0');
    read_exactly(descriptor_, path, sizeof header, text.data(), header);
    if (text.empty() || text.front() != '{') {
      refuse(path, "is not a safetensors file: its header does not begin with '{'");
    }
    const std::uint64_t start = sizeof header + header;
    const nlohmann::json json = parse_header(path, text);
    for (const auto& [name, value] : json.items()) {
      if (name != "__metadata__") {
        entries_[name] = parse_entry(path, name, value, size - start);
        continue;
      }
      for (const auto& [key, note] : value.items()) {
        if (!value.is_object() || !note.is_string()) {
          refuse(path, "its __metadata__ is not a map of texts");
        }
        metadata_[key] = note.get<std::string>();
      }
    }
    check_coverage(path, entries_, size - start);
    for (auto& [name, entry] : entries_) {
      entry.begin += start;
      entry.end += start;
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { ::close(descriptor_); }

const SafetensorsFile::Entry& SafetensorsFile::find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    refuse(path_, fmt::format("has no tensor '{}'", name));
  }
  return found->second;
}

void SafetensorsFile::read(const std::string& name, std::int64_t start, std::int64_t count,
                           double* out) const {
  const Entry& entry = find(name);
  const auto convert = [&](auto type) {
    using T = decltype(type);
    ensure(start >= 0 && count >= 0 &&
               static_cast<std::uint64_t>(start + count) * sizeof(T) <= entry.end - entry.begin,
           "a read beyond a tensor's end");
    constexpr std::int64_t kChunk = 1 << 16;
    std::vector<T> chunk(static_cast<std::size_t>(std::min(count, kChunk)));
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t now = std::min(count - done, kChunk);
      read_exactly(descriptor_, path_,
                   entry.begin + static_cast<std::uint64_t>(start + done) * sizeof(T), chunk.data(),
                   static_cast<std::uint64_t>(now) * sizeof(T));
      std::transform(chunk.begin(), chunk.begin() + now, out + done,
                     [](T value) { return static_cast<double>(value); });
      done += now;
    }
  };
  if (entry.dtype == "F32") {
    convert(float{});
  } else if (entry.dtype == "F64") {
    convert(double{});
  } else if (entry.dtype == "BF16") {
    convert(BFloat16{});
  } else if (entry.dtype == "F16") {
    convert(Float16{});
  } else {
    refuse(path_, fmt::format("tensor '{}' has dtype {}; weights are F32, BF16, F16 or F64", name,
                              entry.dtype));
  }
}

void write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::uint64_t offset = 0;
  const auto bytes_of = [](const SafetensorsItem& item) {
    std::uint64_t bytes = size_of(item.dtype);
    for (const std::int64_t size : item.shape) {
      bytes *= static_cast<std::uint64_t>(size);
    }
    return bytes;
  };
  for (const SafetensorsItem& item : items) {
    ensure(item.dtype == DType::kF32 || item.dtype == DType::kF64, "a type that is not written");
    const std::uint64_t bytes = bytes_of(item);
    std::uint64_t there = 0;
    for (const std::span<const std::byte> run : item.data) {
      there += run.size();
    }
    ensure(there == bytes, "a tensor's bytes and its shape differ");
    header[item.name] = {{"dtype", item.dtype == DType::kF32 ? "F32" : "F64"},
                         {"shape", item.shape},
                         {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((sizeof(std::uint64_t) + text.size() + kHeaderAlignment - 1) / kHeaderAlignment *
                      kHeaderAlignment -
                  sizeof(std::uint64_t),
              ' ');
  const std::uint64_t length = text.size();
  Output out(path);
  out.write(&length, sizeof length);
  out.write(text.data(), text.size());
  for (const SafetensorsItem& item : items) {
    for (const std::span<const std::byte> run : item.data) {
      out.write(run.data(), run.size());
    }
  }
  out.finish();
}

void write_durably(const std::filesystem::path& path, const std::string& text) {
  Output out(path);
  out.write(text.data(), text.size());
  out.finish();
}

void sync_directory(const std::filesystem::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    refuse(directory, "cannot be opened: " + reason());
  }
  const int synced = ::fsync(descriptor);
  ::close(descriptor);
  if (synced != 0) {
    refuse(directory, "cannot be written to the disk: " + reason());
  }
}

}  // namespace tandem
