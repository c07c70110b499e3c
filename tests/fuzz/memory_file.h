// A file that is only memory and has a path, for readers that open one: nothing touches a disk in a
// million inputs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace tandem::fuzz {

class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// Valid in this process.
  const std::filesystem::path& path() const { return path_; }
  void set(std::span<const std::uint8_t> bytes);

 private:
  int descriptor_;
  std::filesystem::path path_;
};

/// A folder of this process under other names for memory files; removed with the object.
class LinkFolder {
 public:
  LinkFolder();
  ~LinkFolder();
  LinkFolder(const LinkFolder&) = delete;
  LinkFolder& operator=(const LinkFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void link(const char* name, const MemoryFile& file);

 private:
  std::filesystem::path path_;
};

}  // namespace tandem::fuzz
