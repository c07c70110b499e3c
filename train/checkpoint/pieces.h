// How the state of a model lies in a checkpoint's files: every parameter's master and moments in
// pieces, a piece being a range of one dimension of one fused part, without padding. Any layout can
// be put together from the pieces of any other.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/layout.h"
#include "parallel/parameter.h"

namespace tandem {

/// What is kept of a parameter.
enum class Kept { kMaster, kExpAvg, kExpAvgSq };
inline constexpr std::array<Kept, 3> kAllKept = {Kept::kMaster, Kept::kExpAvg, Kept::kExpAvgSq};
std::string_view name_of(Kept kept);
/// The parameter's tensor; absent where the optimizer has none.
const Tensor& tensor_of(const Parameter& parameter, Kept kept);

struct Piece {
  std::string file;    ///< within the checkpoint's directory
  std::string key;     ///< within the file
  std::string tensor;  ///< the parameter's name
  Kept kept = Kept::kMaster;
  Shape shape;            ///< of the whole parameter
  int dimension = -1;     ///< that is cut; -1: the piece is the whole parameter
  std::int64_t part = 0;  ///< of the fused parts along it
  std::int64_t parts = 1;
  std::int64_t start = 0;  ///< range of the dimension within the part
  std::int64_t stop = 0;

  /// Elements of a run: what lies together in the piece and in the whole for one index of the
  /// dimensions before `dimension`.
  std::int64_t inner() const;
  std::int64_t outer() const;
  /// Shape of the piece itself.
  Shape own_shape() const;
};

/// The rank that writes a parameter: data ranks, which hold the same, take turns, and what is
/// replicated over a tensor-parallel group is its first rank's.
bool writes(const Layout& layout, const Parameter& parameter, std::size_t index);

/// The pieces that the rank of `layout` writes, in order: of parameters with `moments` moments.
std::vector<Piece> pieces_of(const Layout& layout, const std::vector<ParameterSpec>& parameters,
                             int moments);

}  // namespace tandem
