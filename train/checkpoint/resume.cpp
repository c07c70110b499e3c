#include "train/checkpoint/resume.h"

#include <string>
#include <vector>

#include "train/agree.h"
#include "train/checkpoint/folder.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

std::unique_ptr<Checkpoint> find(const std::string& resume, const fs::path& run,
                                 std::vector<std::string>& skipped) {
  if (resume == "never") {
    return nullptr;
  }
  if (resume == "auto") {
    return newest_whole(run, skipped);
  }
  std::error_code none;
  if (fs::exists(fs::path(resume) / kManifestName, none)) {
    auto checkpoint = std::make_unique<Checkpoint>(resume);
    checkpoint->check_whole();
    return checkpoint;
  }
  auto checkpoint = newest_whole(resume, skipped);
  if (!checkpoint) {
    throw DataError("checkpoint.resume: " + resume + ": is neither a checkpoint (it has no " +
                    kManifestName + ") nor a run directory with checkpoints");
  }
  return checkpoint;
}

}  // namespace

std::unique_ptr<Checkpoint> checkpoint_to_resume(RankContext& rank, const Config& config,
                                                 const fs::path& run, int moments) {
  std::unique_ptr<Checkpoint> checkpoint;
  std::string path;
  agree(*rank.control, [&] {
    if (rank.layout.rank != 0) {
      return;
    }
    std::vector<std::string> skipped;
    checkpoint = find(config.checkpoint.resume, run, skipped);
    path = checkpoint ? checkpoint->directory().string() : "";
    for (const std::string& why : skipped) {
      rank.log->warn("a checkpoint is passed over: " + why);
    }
  });
  std::int64_t size = std::ssize(path);
  rank.control->broadcast(Tensor(&size, DType::kI64, {1}), 0, {.label = "checkpoint"}).wait_host();
  path.resize(static_cast<std::size_t>(size));
  rank.control->broadcast(Tensor(path.data(), DType::kU8, {size}), 0, {.label = "checkpoint"})
      .wait_host();
  agree(*rank.control, [&] {
    if (!path.empty()) {
      checkpoint = std::make_unique<Checkpoint>(path);
      checkpoint->check_model(config, moments);
    }
  });
  return checkpoint;
}

}  // namespace tandem
