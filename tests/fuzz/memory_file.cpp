#include "tests/fuzz/memory_file.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

namespace tandem::fuzz {

MemoryFile::MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
  if (descriptor_ < 0) {
    throw std::runtime_error("memfd_create failed");
  }
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

MemoryFile::~MemoryFile() { close(descriptor_); }

void MemoryFile::set(std::span<const std::uint8_t> bytes) {
  const auto size = static_cast<ssize_t>(bytes.size());
  if (ftruncate(descriptor_, size) != 0 ||
      pwrite(descriptor_, bytes.data(), bytes.size(), 0) != size) {
    throw std::runtime_error("a file in memory cannot be written");
  }
}

LinkFolder::LinkFolder() {
  std::string name = std::filesystem::temp_directory_path() / "tandem_fuzz_XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("no folder can be made");
  }
  path_ = name;
}

LinkFolder::~LinkFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void LinkFolder::link(const char* name, const MemoryFile& file) {
  std::filesystem::create_symlink(file.path(), path_ / name);
}

}  // namespace tandem::fuzz
