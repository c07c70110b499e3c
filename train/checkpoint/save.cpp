#include "train/checkpoint/save.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <span>

#include "core/error.h"
#include "core/safetensors.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

/// Between two looks at a write that has to be waited for.
constexpr std::chrono::milliseconds kWait{5};

/// The pieces that every rank of the store's layout writes.
std::vector<Piece> all_pieces(const ParameterStore& store) {
  std::vector<Piece> pieces;
  Layout layout = store.layout();
  for (layout.rank = 0; layout.rank < layout.world(); ++layout.rank) {
    ParameterStore other(layout);
    for (const Parameter& parameter : store.parameters()) {
      other.add(parameter.spec());
    }
    Arena measuring;
    other.allocate(measuring, Precision{}, store.options());
    for (WrittenPiece& written : pieces_of(other)) {
      pieces.push_back(std::move(written.piece));
    }
  }
  return pieces;
}

/// Where a piece's elements lie in the copy of its shard: together, or with padding between them.
/// `from`: the shard's first element.
std::vector<std::span<const std::byte>> runs_of(const Piece& piece, const Parameter& parameter,
                                                const ParameterShard& shard, const std::byte* from,
                                                std::size_t element) {
  std::vector<std::span<const std::byte>> runs;
  for_each_common_run(piece, parameter, shard.start, shard.stop(),
                      [&](std::int64_t, std::int64_t at, std::int64_t length) {
                        const std::byte* start =
                            from + static_cast<std::size_t>(at - shard.start) * element;
                        const std::size_t bytes = static_cast<std::size_t>(length) * element;
                        if (!runs.empty() && runs.back().data() + runs.back().size() == start) {
                          runs.back() = {runs.back().data(), runs.back().size() + bytes};
                        } else {
                          runs.emplace_back(start, bytes);
                        }
                      });
  return runs;
}

}  // namespace

std::vector<CheckpointSaver::Written> CheckpointSaver::written_by(const ParameterStore& store,
                                                                  std::size_t& bytes) {
  std::vector<Written> all;
  bytes = 0;
  for (WrittenPiece& written : pieces_of(store)) {
    const Parameter& parameter = store.parameters()[written.parameter];
    const ParameterShard& shard = parameter.shards[written.shard];
    const Tensor& tensor = tensor_of(shard, written.piece.kept);
    const bool copied =
        !all.empty() && all.back().shard == &shard && all.back().piece.kept == written.piece.kept;
    const std::size_t offset = copied ? all.back().offset : bytes;
    bytes += copied ? 0 : tensor.bytes();
    all.push_back({std::move(written.piece), &parameter, &shard, offset, !copied});
  }
  return all;
}

std::size_t CheckpointSaver::copy_bytes(const ParameterStore& store) {
  const DType main = store.owned().front().range.master.dtype;
  return static_cast<std::size_t>(most_written(store) * (1 + store.options().moments)) *
         size_of(main);
}

CheckpointSaver::CheckpointSaver(RankContext& rank, const Config& config,
                                 const ParameterStore& store, const fs::path& run)
    : rank_(&rank),
      config_(&config),
      store_(&store),
      folder_(run),
      written_(written_by(store, bytes_)) {
  if (config.checkpoint.every > 0) {
    copy_.resize(bytes_);
  }
}

CheckpointSaver::~CheckpointSaver() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

void CheckpointSaver::save(const Progress& progress) {
  finish();
  copy_.resize(bytes_);
  for (const Written& written : written_) {
    if (written.copies) {
      const Tensor& tensor = tensor_of(*written.shard, written.piece.kept);
      rank_->device->copy(*rank_->compute, tensor,
                          Tensor(copy_.data() + written.offset, tensor.dtype, tensor.shape));
    }
  }
  rank_->compute->synchronize();
  progress_ = progress;
  problem_.clear();
  done_ = false;
  pending_ = true;
  thread_ = std::thread([this] { write(); });
}

void CheckpointSaver::write() noexcept {
  try {
    const fs::path directory = folder_.unfinished(progress_.step);
    fs::create_directories(directory);
    std::vector<SafetensorsItem> items;
    for (const Written& written : written_) {
      const DType dtype = tensor_of(*written.shard, written.piece.kept).dtype;
      const Shape own = written.piece.own_shape();
      SafetensorsItem item{.name = written.piece.key, .dtype = dtype, .shape = {}, .data = {}};
      for (int d = 0; d < own.rank(); ++d) {
        item.shape.push_back(own[d]);
      }
      item.data = runs_of(written.piece, *written.parameter, *written.shard,
                          copy_.data() + written.offset, size_of(dtype));
      items.push_back(std::move(item));
    }
    if (!items.empty()) {
      write_safetensors(directory / written_.front().piece.file, items);
    }
  } catch (const std::exception& error) {
    problem_ = error.what();
  }
  done_ = true;
}

void CheckpointSaver::poll() {
  if (!pending_) {
    return;
  }
  const bool done = done_;
  std::array<std::int64_t, 2> counts = {done ? 1 : 0, done && !problem_.empty() ? 1 : 0};
  rank_->control->all_reduce(Tensor::of<std::int64_t>(counts, {2}), {.label = "checkpoint written"})
      .wait_host();
  if (counts[0] == rank_->layout.world()) {
    end(counts[1] > 0);
  }
}

void CheckpointSaver::finish() {
  // Ranks meet all the while: one whose disk is slow is not taken for one that is lost.
  for (poll(); pending_; poll()) {
    for (int waits = 0; waits < 20 && !done_; ++waits) {
      std::this_thread::sleep_for(kWait);
    }
  }
}

void CheckpointSaver::end(bool failed_anywhere) {
  if (thread_.joinable()) {
    thread_.join();
  }
  pending_ = false;
  const auto warn = [&](const std::string& what) {
    rank_->log->warn(fmt::format("checkpoint of step {} was not saved: {}. Training goes on{}",
                                 progress_.step, what,
                                 folder_.candidates().empty() ? "" : "; older ones are whole"));
  };
  if (!problem_.empty()) {
    warn(problem_);
  }
  if (rank_->layout.rank != 0) {
    return;
  }
  if (!failed_anywhere) {
    Manifest manifest{.progress = progress_,
                      .tp = rank_->layout.tp,
                      .dp = rank_->layout.dp,
                      .config = to_yaml(*config_),
                      .moments = store_->options().moments,
                      .pieces = all_pieces(*store_)};
    try {
      folder_.publish(manifest, config_->checkpoint.keep);
      return;
    } catch (const std::exception& error) {
      warn(error.what());
    }
  }
  folder_.discard(progress_.step);
}

}  // namespace tandem
