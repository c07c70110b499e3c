#include "train/data/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/error.h"

namespace tandem {
namespace {

constexpr const char* kRemedy =
    "; set data.path to a readable file with text in it (scripts/prepare_text.sh writes "
    "data/kjv.txt)";

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw DataError("data.path: '" + path + "' " + why + kRemedy);
}

std::string reason(int code) { return std::generic_category().message(code); }

}  // namespace

DataFile::DataFile(const std::string& path) : path_(path) {
  struct stat status {};
  // Looked at before it is opened: opening a pipe would wait for a writer.
  if (::stat(path.c_str(), &status) != 0) {
    refuse(path, "cannot be opened: " + reason(errno));
  }
  if (S_ISDIR(status.st_mode)) {
    refuse(path, "is a directory, not a file");
  }
  if (!S_ISREG(status.st_mode)) {
    refuse(path, "is not a regular file");
  }
  if (status.st_size == 0) {
    refuse(path, "is empty: 0 bytes");
  }
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    refuse(path, "cannot be opened: " + reason(errno));
  }
  size_ = status.st_size;
}

DataFile::~DataFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void DataFile::read(std::int64_t offset, std::span<unsigned char> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw DataError("data.path: '" + path_ + "' cannot be read at byte " +
                      std::to_string(offset) + ": " + reason(errno));
    }
    if (got == 0) {
      throw DataError("data.path: '" + path_ + "' ends at byte " + std::to_string(offset) +
                      ", but had " + std::to_string(size_) +
                      " bytes when it was opened; leave the file as it is while a run reads it");
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

}  // namespace tandem
