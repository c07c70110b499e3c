#include "train/checkpoint/save.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstring>

#include "core/error.h"
#include "core/safetensors.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

/// Between two looks at a write that has to be waited for.
constexpr std::chrono::milliseconds kWait{5};

std::vector<ParameterSpec> specs_of(const ParameterStore& store) {
  std::vector<ParameterSpec> specs;
  for (const Parameter& parameter : store.parameters()) {
    specs.push_back(parameter.spec());
  }
  return specs;
}

int moments_of(const ParameterStore& store) {
  const Parameter& first = store.parameters().front();
  return !first.exp_avg_sq.absent() ? 2 : !first.exp_avg.absent() ? 1 : 0;
}

/// Moves a piece's elements together where its local tensor also holds other parts or padding.
const std::byte* packed(const Piece& piece, const Tensor& local, std::vector<std::byte>& memory) {
  const std::size_t element = size_of(local.dtype);
  if (piece.dimension < 0 || piece.own_shape() == local.shape) {
    return local.data;
  }
  const auto inner = static_cast<std::size_t>(piece.inner()) * element;
  const std::size_t run = static_cast<std::size_t>(piece.stop - piece.start) * inner;
  const std::size_t row = static_cast<std::size_t>(local.dim(piece.dimension)) * inner;
  const auto outer = static_cast<std::size_t>(piece.outer());
  const std::byte* from = local.data + static_cast<std::size_t>(piece.part) *
                                           (row / static_cast<std::size_t>(piece.parts));
  if (outer == 1) {  // they are together
    return from;
  }
  memory.resize(outer * run);
  for (std::size_t o = 0; o < outer; ++o) {
    std::memcpy(memory.data() + o * run, from + o * row, run);
  }
  return memory.data();
}

}  // namespace

std::vector<CheckpointSaver::Written> CheckpointSaver::written_by(const Layout& layout,
                                                                  const ParameterStore& store,
                                                                  std::size_t& bytes) {
  std::vector<Written> all;
  std::size_t offset = 0;
  bytes = 0;
  for (Piece& piece : pieces_of(layout, specs_of(store), moments_of(store))) {
    const Parameter& parameter = store.find(piece.tensor);
    if (piece.part == 0) {  // the parts share one copy of their local tensor
      offset = bytes;
      bytes += tensor_of(parameter, piece.kept).bytes();
    }
    all.push_back({std::move(piece), &parameter, offset});
  }
  return all;
}

std::size_t CheckpointSaver::copy_bytes(const Layout& layout, const ParameterStore& store) {
  std::size_t bytes = 0;
  written_by(layout, store, bytes);
  return bytes;
}

CheckpointSaver::CheckpointSaver(RankContext& rank, const Config& config,
                                 const ParameterStore& store, const fs::path& run)
    : rank_(&rank),
      config_(&config),
      store_(&store),
      folder_(run),
      written_(written_by(rank.layout, store, bytes_)) {
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
    if (written.piece.part == 0) {
      const Tensor& tensor = tensor_of(*written.parameter, written.piece.kept);
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
    std::vector<std::vector<std::byte>> memory(written_.size());
    std::vector<SafetensorsItem> items;
    for (std::size_t i = 0; i < written_.size(); ++i) {
      const auto& [piece, parameter, offset] = written_[i];
      const Tensor& tensor = tensor_of(*parameter, piece.kept);
      const Shape own = piece.own_shape();
      SafetensorsItem item{.name = piece.key, .dtype = tensor.dtype, .shape = {}};
      for (int d = 0; d < own.rank(); ++d) {
        item.shape.push_back(own[d]);
      }
      item.data =
          packed(piece, Tensor(copy_.data() + offset, tensor.dtype, tensor.shape), memory[i]);
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
                      .moments = moments_of(*store_)};
    for (int r = 0; r < rank_->layout.world(); ++r) {
      for (Piece& piece :
           pieces_of({manifest.tp, manifest.dp, r}, specs_of(*store_), manifest.moments)) {
        manifest.pieces.push_back(std::move(piece));
      }
    }
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
