// A data file that stays open: read by offset, never mapped, so that a file that shrinks during a
// run is an error with a name and not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tandem {

class DataFile {
 public:
  /// Throws DataError with the path and the reason: missing, unreadable, not a regular file, empty.
  explicit DataFile(const std::string& path);
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  ~DataFile();

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  /// Fills `out` from byte `offset` on. Throws DataError if those bytes cannot be read any more.
  void read(std::int64_t offset, std::span<unsigned char> out) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace tandem
