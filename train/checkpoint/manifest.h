// manifest.json: what a checkpoint is of, and where every piece of it lies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/checkpoint/pieces.h"
#include "train/progress.h"

namespace tandem {

struct Manifest {
  Progress progress;
  int tp = 1, dp = 1;
  std::string config;  ///< the run's resolved config.yaml
  int moments = 0;     ///< of each parameter
  std::vector<Piece> pieces;
};

inline constexpr const char* kManifestName = "manifest.json";

std::string to_json(const Manifest& manifest);
/// Reads `directory`/manifest.json. Throws DataError with the file, what was expected and what was
/// found.
Manifest read_manifest(const std::filesystem::path& directory);

}  // namespace tandem
