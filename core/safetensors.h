// Files of named tensors in the safetensors format: eight bytes of header length (little-endian), a
// JSON header of name -> {dtype, shape, data_offsets}, and the tensors' bytes, little-endian and
// row-major, which the ranges cover exactly. https://github.com/huggingface/safetensors
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace tandem {

/// A file opened for reading. Its header is validated whole before anything of the size it claims
/// is allocated.
class SafetensorsFile {
 public:
  struct Entry {
    std::string dtype;  ///< as the format spells it: "F32", "BF16", "I64", ...
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0, end = 0;  ///< bytes within the file
  };

  /// Throws DataError with the file, what was expected and what was found.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Throws DataError if there is none of that name.
  const Entry& find(const std::string& name) const;

  /// Elements [start, start + count) of tensor `name`, converted to double. Floating types only.
  void read(const std::string& name, std::int64_t start, std::int64_t count, double* out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to be written.
struct SafetensorsItem {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  /// Its bytes in runs, in order, that outlive the call: what lies apart is not put together first.
  std::vector<std::span<const std::byte>> data;
};

/// Writes `path` whole, or throws DataError with the system's words; the file is on the disk
/// (fsync) when this returns. The header is padded so that tensors start at a multiple of 64 bytes.
void write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata = {});

/// Writes a small file whole and to the disk.
void write_durably(const std::filesystem::path& path, const std::string& text);
/// Makes what was renamed or created in a directory survive a power failure.
void sync_directory(const std::filesystem::path& directory);

}  // namespace tandem
