// Reading a checkpoint: under the layout that wrote it or any other.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/safetensors.h"
#include "parallel/rank_context.h"
#include "train/checkpoint/manifest.h"
#include "train/config.h"

namespace tandem {

class Checkpoint {
 public:
  /// Reads and checks the manifest. Throws DataError.
  explicit Checkpoint(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }

  /// Opens every file and holds every piece against it, and the pieces against each other: they
  /// cover each tensor exactly once. Throws DataError.
  void check_whole();
  /// Throws DataError if this is a checkpoint of another model or optimizer than the config's.
  void check_model(const Config& config, int moments) const;

  /// Elements [start, stop) of this rank's part of a parameter, padding 0.
  std::vector<double> read(const Parameter& parameter, Kept kept, std::int64_t start,
                           std::int64_t stop);
  /// Masters, moments and stored weights of this rank. Waits for the compute stream.
  void load(RankContext& rank, ParameterStore& store);

 private:
  const SafetensorsFile& file(const std::string& name);

  std::filesystem::path directory_;
  Manifest manifest_;
  std::map<std::pair<std::string, Kept>, std::vector<const Piece*>> pieces_;  ///< of manifest_
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
};

/// The newest whole checkpoint of a run directory; `skipped` says what was wrong with newer ones.
/// Nothing if there is none at all; throws DataError if there are some and none is whole.
std::unique_ptr<Checkpoint> newest_whole(const std::filesystem::path& run,
                                         std::vector<std::string>& skipped);

/// Gives a parameter's master, and the stored weight made of it, or a moment, new values: one for
/// each element of its local part from `start` on, of which a shard takes its own.
void set_kept(RankContext& rank, const Parameter& parameter, Kept kept,
              const std::vector<double>& values, std::int64_t start = 0);

/// Throws DataError if a file of whole tensors, named as in PyTorch, is not of these parameters.
void check_weights(const std::filesystem::path& path, const std::vector<ParameterSpec>& parameters);
/// Weights from such a file; moments as they are.
void import_weights(const std::filesystem::path& path, RankContext& rank, ParameterStore& store);
/// The masters of a checkpoint as one file of whole tensors.
void export_weights(Checkpoint& checkpoint, const std::vector<ParameterSpec>& parameters,
                    const std::filesystem::path& path);

}  // namespace tandem
