// The checkpoints of one run: checkpoints/step_00000100/, and checkpoints/latest, a text file with
// the bare name of the newest one that is whole. A checkpoint is written beside under another name,
// flushed, renamed, and only then named by `latest`: a kill at any moment leaves the one before
// whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/checkpoint/manifest.h"

namespace tandem {

class CheckpointFolder {
 public:
  /// Of the run directory `run`.
  explicit CheckpointFolder(const std::filesystem::path& run) : path_(run / "checkpoints") {}

  const std::filesystem::path& path() const { return path_; }
  /// Where a checkpoint is while it is written.
  std::filesystem::path unfinished(std::int64_t step) const;
  std::filesystem::path finished(std::int64_t step) const;

  /// Checkpoints to try: the one that `latest` names, older ones, newest first, and those of later
  /// steps last: a run that was resumed from an older one takes these steps again.
  std::vector<std::filesystem::path> candidates() const;

  /// Rank 0's, once every rank's file lies in unfinished(): writes the manifest, renames, switches
  /// `latest`, and removes all but the first `keep` candidates. Throws DataError if the disk
  /// refuses.
  void publish(const Manifest& manifest, std::int64_t keep) const;
  /// Makes the one of `step` the newest: what a run goes on from, if nothing newer is published.
  void name_latest(std::int64_t step) const;
  /// Forgets what a failed write left.
  void discard(std::int64_t step) const noexcept;
  /// Forgets what killed runs were writing; nobody writes now.
  void discard_unfinished() const;
  /// Moves checkpoints of an earlier run out of the way, to checkpoints.1 and so on.
  void set_aside() const;

 private:
  std::filesystem::path path_;
};

}  // namespace tandem
