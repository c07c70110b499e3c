#include "train/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <string>

namespace tandem {

namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

/// The bytes of `value` as they lie in memory.
template <typename T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

/// CRC-32C (RFC 3720, appendix B.4), masked as the record format wants it.
std::uint32_t masked_crc(std::string_view data) {
  static constexpr std::array<std::uint32_t, 256> kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit) {
        table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82F63B78U : 0U);
      }
    }
    return table;
  }();
  std::uint32_t crc = ~0U;
  for (const char c : data) {
    crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ crc >> 8;
  }
  return std::rotr(~crc, 15) + 0xA282EAD8U;
}

// Fields of protocol buffers: a key (number * 8 + wire type), then the value.

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>(value | 0x80);
  }
  return bytes += static_cast<char>(value);
}

std::string varint_field(int number, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(value);
}

std::string bytes_field(int number, std::string_view bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) +
         std::string(bytes);
}

std::string double_field(int number, double value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 1) + bytes_of(value);
}

std::string float_field(int number, float value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 5) + bytes_of(value);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Event: wall_time = 1, step = 2, and one of file_version = 3, summary = 5, session_log = 7.
std::string event(std::int64_t step, int number, std::string_view what) {
  return double_field(1, seconds_now()) + varint_field(2, static_cast<std::uint64_t>(step)) +
         bytes_field(number, what);
}

constexpr int kFileVersion = 3;
constexpr int kSummary = 5;
constexpr int kSessionLog = 7;

/// The name says to TensorBoard what the file is; no two starts of a run have the same.
std::string file_name() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("events.out.tfevents.{:.0f}.{}.{}", seconds_now() * 1e3, host.data(),
                     getpid());
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& directory, std::optional<std::int64_t> resumed) {
  std::filesystem::create_directories(directory);
  out_.open(directory / file_name(), std::ios::binary);
  write_record(event(0, kFileVersion, "brain.Event:2"));
  if (resumed) {
    // SessionLog: status = 1, of which 1 is START.
    write_record(event(*resumed + 1, kSessionLog, varint_field(1, 1)));
  }
  out_.flush();
}

void EventFile::add(std::int64_t step, std::initializer_list<Scalar> scalars) {
  // Summary: repeated value = 1; Value: tag = 1, simple_value = 2.
  std::string summary;
  for (const Scalar& scalar : scalars) {
    summary += bytes_field(
        1, bytes_field(1, scalar.tag) + float_field(2, static_cast<float>(scalar.value)));
  }
  write_record(event(step, kSummary, summary));
  out_.flush();
}

void EventFile::write_record(std::string_view data) {
  const std::string size = bytes_of(static_cast<std::uint64_t>(data.size()));
  out_ << size << bytes_of(masked_crc(size)) << data << bytes_of(masked_crc(data));
}

}  // namespace tandem
