// How the state of a model lies in a checkpoint's files: every parameter's master and moments in
// pieces. A piece is (a flat range of) a box: a range of one dimension of one fused part, without
// padding. Any layout can be put together from the pieces of any other.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/parameter_store.h"

namespace tandem {

/// What is kept of a parameter.
enum class Kept { kMaster, kExpAvg, kExpAvgSq };
inline constexpr std::array<Kept, 3> kAllKept = {Kept::kMaster, Kept::kExpAvg, Kept::kExpAvgSq};
std::string_view name_of(Kept kept);
/// The shard's tensor; absent where the optimizer has none.
const Tensor& tensor_of(const ParameterShard& shard, Kept kept);

struct Piece {
  std::string file;    ///< within the checkpoint's directory
  std::string key;     ///< within the file
  std::string tensor;  ///< the parameter's name
  Kept kept = Kept::kMaster;
  Shape shape;            ///< of the whole parameter
  int dimension = -1;     ///< that is cut; -1: the piece is the whole parameter
  std::int64_t part = 0;  ///< of the fused parts along it
  std::int64_t parts = 1;
  std::int64_t start = 0;  ///< range of the dimension within the part: the box
  std::int64_t stop = 0;
  std::int64_t flat_start = 0;  ///< range of the box's elements, row-major
  std::int64_t flat_stop = 0;

  /// The box has `outer` rows of `row` elements, each of which lie together in the whole, too:
  /// one for each index of the dimensions before `dimension`.
  std::int64_t outer() const;
  std::int64_t row() const { return (stop - start) * inner(); }
  /// Elements for one index of `dimension`.
  std::int64_t inner() const;
  std::int64_t numel() const { return flat_stop - flat_start; }
  bool is_box() const { return numel() == outer() * row(); }
  /// Shape of the piece itself: of the box, or flat.
  Shape own_shape() const;
};

/// A piece that a rank writes, and where it has its elements.
struct WrittenPiece {
  Piece piece;
  std::size_t parameter;  ///< index in the store
  std::size_t shard;      ///< index in the parameter's shards
};

/// The pieces that the rank of `store` writes, in order. Data ranks that hold the same share them
/// out, and what is replicated over a tensor-parallel group is its first rank's. The store may be a
/// measured one.
std::vector<WrittenPiece> pieces_of(const ParameterStore& store);
/// Parameters that the rank with most of them writes, padding included.
std::int64_t most_written(const ParameterStore& store);

/// Calls `visit(in_piece, in_local, length)` for each run of the piece's elements that lies in
/// elements [start, stop) of `parameter`, which is this rank's part of the piece's tensor: offsets
/// from the piece's first element and into the local tensor. In order.
void for_each_common_run(
    const Piece& piece, const Parameter& parameter, std::int64_t start, std::int64_t stop,
    const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit);

}  // namespace tandem
