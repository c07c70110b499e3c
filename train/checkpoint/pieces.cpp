#include "train/checkpoint/pieces.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {

std::string_view name_of(Kept kept) {
  switch (kept) {
    case Kept::kMaster:
      return "master";
    case Kept::kExpAvg:
      return "exp_avg";
    case Kept::kExpAvgSq:
      return "exp_avg_sq";
  }
  return "?";
}

const Tensor& tensor_of(const ParameterShard& shard, Kept kept) {
  return kept == Kept::kMaster   ? shard.master
         : kept == Kept::kExpAvg ? shard.exp_avg
                                 : shard.exp_avg_sq;
}

std::int64_t Piece::inner() const {
  std::int64_t n = 1;
  for (int i = dimension + 1; dimension >= 0 && i < shape.rank(); ++i) {
    n *= shape[i];
  }
  return dimension < 0 ? shape.numel() : n;
}

std::int64_t Piece::outer() const {
  std::int64_t n = 1;
  for (int i = 0; i < dimension; ++i) {
    n *= shape[i];
  }
  return n;
}

Shape Piece::own_shape() const {
  if (!is_box()) {
    return {numel()};
  }
  Shape own = shape;
  if (dimension >= 0) {
    own[dimension] = stop - start;
  }
  return own;
}

namespace {

/// Elements of the box that lie before element `at` of the local tensor it is a part of.
std::int64_t elements_before(const Piece& box, const Parameter& parameter, std::int64_t at) {
  if (box.dimension < 0) {
    return at;
  }
  const std::int64_t local = parameter.local_shape()[box.dimension];
  const std::int64_t local_row = local * box.inner();
  const std::int64_t first = box.part * (local / box.parts) * box.inner();
  return at / local_row * box.row() +
         std::clamp<std::int64_t>(at % local_row - first, 0, box.row());
}

/// Where all data ranks hold the same: who writes each parameter, the one that has least so far.
struct Shares {
  explicit Shares(const ParameterStore& store)
      : elements(static_cast<std::size_t>(store.layout().dp), 0) {
    for (const Parameter& parameter : store.parameters()) {
      const auto least = std::min_element(elements.begin(), elements.end());
      *least += parameter.local_shape().numel();
      writers.push_back(static_cast<int>(least - elements.begin()));
    }
  }

  std::vector<std::int64_t> elements;  ///< of each data rank
  std::vector<int> writers;            ///< of each parameter
};

}  // namespace

std::int64_t most_written(const ParameterStore& store) {
  if (!store.options().sharded) {
    const Shares shares(store);
    return *std::max_element(shares.elements.begin(), shares.elements.end());
  }
  std::int64_t elements = 0;
  for (const OwnedRange& owned : store.owned()) {
    elements += owned.range.master.numel();
  }
  return elements;
}

std::vector<WrittenPiece> pieces_of(const ParameterStore& store) {
  const Layout& layout = store.layout();
  const std::vector<int> writers = Shares(store).writers;
  std::vector<WrittenPiece> pieces;
  for (std::size_t i = 0; i < store.parameters().size(); ++i) {
    const Parameter& parameter = store.parameters()[i];
    const bool mine = store.options().sharded || writers[i] == layout.dp_rank();
    if (!mine || (!parameter.is_cut() && layout.tp_rank() != 0)) {
      continue;
    }
    const ParameterSpec& spec = parameter.spec();
    for (const Kept kept : kAllKept) {
      for (std::size_t s = 0; s < parameter.shards.size(); ++s) {
        const ParameterShard& shard = parameter.shards[s];
        for (std::int64_t part = 0; part < spec.parts && !tensor_of(shard, kept).absent(); ++part) {
          Piece piece{
              .file = fmt::format("rank_{:05}.safetensors", layout.rank),
              .key = fmt::format("{}.{}{}", spec.name, name_of(kept),
                                 spec.parts > 1 ? fmt::format(".{}", part) : ""),
              .tensor = spec.name,
              .kept = kept,
              .shape = spec.shape,
              .dimension = spec.cut_dimension,
              .part = part,
              .parts = spec.parts,
              .start = parameter.is_cut() ? parameter.cut_start() : 0,
              .stop = parameter.is_cut() ? parameter.cut_start() + parameter.cut_valid() : 1};
          piece.flat_start = elements_before(piece, parameter, shard.start);
          piece.flat_stop = elements_before(piece, parameter, shard.stop());
          if (piece.numel() == 0) {  // padding only
            continue;
          }
          if (!piece.is_box()) {
            piece.key += fmt::format(".from_{}", piece.flat_start);
          }
          pieces.push_back({std::move(piece), i, s});
        }
      }
    }
  }
  return pieces;
}

void for_each_common_run(
    const Piece& piece, const Parameter& parameter, std::int64_t start, std::int64_t stop,
    const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) {
  const std::int64_t inner = piece.inner();
  std::int64_t low = 0, high = 1;  // of the dimension, within the part
  // Of the local tensor: a row, and where `low` is in it.
  std::int64_t local_row = parameter.local_shape().numel(), to = 0;
  if (piece.dimension >= 0) {
    low = std::max(piece.start, parameter.cut_start());
    high = std::min(piece.stop, parameter.cut_start() + parameter.cut_valid());
    const std::int64_t local = parameter.local_shape()[piece.dimension];
    local_row = local * inner;
    to = (piece.part * (local / piece.parts) + low - parameter.cut_start()) * inner;
  }
  if (low >= high || start >= stop) {
    return;
  }
  const std::int64_t last = std::min((piece.flat_stop - 1) / piece.row(), (stop - 1) / local_row);
  for (std::int64_t o = std::max(piece.flat_start / piece.row(), start / local_row); o <= last;
       ++o) {
    const std::int64_t first = o * piece.row() + (low - piece.start) * inner;
    const std::int64_t local = o * local_row + to;
    const std::int64_t from = std::max({first, piece.flat_start, first + start - local});
    const std::int64_t end =
        std::min({first + (high - low) * inner, piece.flat_stop, first + stop - local});
    if (from < end) {
      visit(from - piece.flat_start, local + from - first, end - from);
    }
  }
}

}  // namespace tandem
