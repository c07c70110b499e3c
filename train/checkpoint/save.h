// Saving while training goes on: a step is held up for the copy of the state to host memory, a
// thread of each rank writes its file, and rank 0 publishes the checkpoint after the step at whose
// end all files are on the disk. A write that fails leaves the older checkpoints whole; the run
// warns and goes on.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "parallel/rank_context.h"
#include "train/checkpoint/folder.h"
#include "train/config.h"

namespace tandem {

class CheckpointSaver {
 public:
  /// All arguments outlive it. `run`: the run directory, the same on every rank.
  CheckpointSaver(RankContext& rank, const Config& config, const ParameterStore& store,
                  const std::filesystem::path& run);
  /// Waits for the own file, and leaves it unpublished.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Host memory for the copy of what a rank writes, of the rank that writes most; `store` may be a
  /// measured one.
  static std::size_t copy_bytes(const ParameterStore& store);

  // Collective over all ranks, in the same order on each.

  /// Copies the state and starts to write; a write under way is finished first.
  void save(const Progress& progress);
  /// Publishes what every rank has written by now. Costs one small collective while a write is
  /// under way, nothing otherwise.
  void poll();
  /// Waits for the write under way and publishes it.
  void finish();

  /// Of the last checkpoint that was begun; 0 for none.
  std::int64_t last_step() const { return progress_.step; }

 private:
  /// A piece and where its shard's tensor is copied to.
  struct Written {
    Piece piece;
    const Parameter* parameter;
    const ParameterShard* shard;
    std::size_t offset;  ///< in copy_
    bool copies;         ///< the first piece of a tensor: the others share its copy
  };

  static std::vector<Written> written_by(const ParameterStore& store, std::size_t& bytes);
  void write() noexcept;
  void end(bool failed_anywhere);

  RankContext* rank_;
  const Config* config_;
  const ParameterStore* store_;
  CheckpointFolder folder_;
  std::size_t bytes_ = 0;  ///< of copy_
  std::vector<Written> written_;
  std::vector<std::byte> copy_;
  bool pending_ = false;
  Progress progress_;
  std::thread thread_;
  std::atomic<bool> done_ = false;
  std::string problem_;  ///< read once done_ is true
};

}  // namespace tandem
