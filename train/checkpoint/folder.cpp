#include "train/checkpoint/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "core/error.h"
#include "core/safetensors.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPrefix = "step_";
constexpr const char* kLatest = "latest";
constexpr const char* kUnfinished = ".unfinished";

std::string name_of_step(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

/// "step_" and digits alone.
bool is_checkpoint(const std::string& name) {
  const std::string_view prefix = kPrefix;
  return name.size() > prefix.size() && name.starts_with(prefix) &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

fs::path CheckpointFolder::unfinished(std::int64_t step) const {
  return path_ / (name_of_step(step) + kUnfinished);
}

fs::path CheckpointFolder::finished(std::int64_t step) const { return path_ / name_of_step(step); }

std::vector<fs::path> CheckpointFolder::candidates() const {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(path_, none)) {
    if (is_checkpoint(entry.path().filename().string())) {
      names.push_back(entry.path().filename().string());
    }
  }
  // Longer numbers are larger: the width grows beyond eight digits.
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) > std::pair(b.size(), b);
  });
  std::string latest;
  std::getline(std::ifstream(path_ / kLatest), latest);
  const auto named = std::find(names.begin(), names.end(), latest);
  if (named != names.end()) {
    std::rotate(names.begin(), named, names.end());
  }
  std::vector<fs::path> paths;
  for (const std::string& name : names) {
    paths.push_back(path_ / name);
  }
  return paths;
}

void CheckpointFolder::publish(const Manifest& manifest, std::int64_t keep) const {
  const std::int64_t step = manifest.progress.step;
  const fs::path from = unfinished(step);
  const fs::path to = finished(step);
  std::string found;
  for (const Piece& piece : manifest.pieces) {  // rank by rank
    std::error_code none;
    if (piece.file != std::exchange(found, piece.file) && !fs::exists(from / piece.file, none)) {
      throw DataError((from / piece.file).string() +
                      ": was written by another rank and is not there: name a log.dir on a file "
                      "system that all hosts share");
    }
  }
  write_durably(from / kManifestName, to_json(manifest));
  sync_directory(from);
  try {
    fs::remove_all(to);  // of the same step, left by a run that was resumed from an older one
    fs::rename(from, to);
    sync_directory(path_);
    name_latest(step);
    const std::vector<fs::path> all = candidates();
    for (std::size_t i = static_cast<std::size_t>(keep); i < all.size(); ++i) {
      std::error_code ignored;  // what stays costs room; the new one is whole
      fs::remove_all(all[i], ignored);
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(error.what());
  }
}

void CheckpointFolder::name_latest(std::int64_t step) const {
  const fs::path beside = path_ / fmt::format("{}{}", kLatest, kUnfinished);
  write_durably(beside, name_of_step(step) + "\n");
  fs::rename(beside, path_ / kLatest);
  sync_directory(path_);
}

void CheckpointFolder::discard(std::int64_t step) const noexcept {
  std::error_code ignored;
  fs::remove_all(unfinished(step), ignored);
}

void CheckpointFolder::discard_unfinished() const {
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kUnfinished) && is_checkpoint(name.substr(0, name.rfind('.')))) {
      left.push_back(entry.path());
    }
  }
  for (const fs::path& path : left) {
    fs::remove_all(path);
  }
}

void CheckpointFolder::set_aside() const {
  if (!fs::exists(path_)) {
    return;
  }
  for (int n = 1;; ++n) {
    const fs::path old = path_.parent_path() / fmt::format("{}.{}", path_.filename().string(), n);
    if (!fs::exists(old)) {
      fs::rename(path_, old);
      return;
    }
  }
}

}  // namespace tandem
