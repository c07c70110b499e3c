#include "train/checkpoint/pieces.h"

#include <fmt/format.h>

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

const Tensor& tensor_of(const Parameter& parameter, Kept kept) {
  return kept == Kept::kMaster   ? parameter.master
         : kept == Kept::kExpAvg ? parameter.exp_avg
                                 : parameter.exp_avg_sq;
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
  Shape own = shape;
  if (dimension >= 0) {
    own[dimension] = stop - start;
  }
  return own;
}

bool writes(const Layout& layout, const Parameter& parameter, std::size_t index) {
  return static_cast<int>(index % static_cast<std::size_t>(layout.dp)) == layout.dp_rank() &&
         (parameter.is_cut() || layout.tp_rank() == 0);
}

std::vector<Piece> pieces_of(const Layout& layout, const std::vector<ParameterSpec>& parameters,
                             int moments) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& spec = parameters[i];
    const Parameter parameter(spec, layout, static_cast<std::uint32_t>(i));
    if (!writes(layout, parameter, i) || (parameter.is_cut() && parameter.cut_valid() == 0)) {
      continue;
    }
    for (const Kept kept : kAllKept) {
      if (static_cast<int>(kept) > moments) {
        break;
      }
      for (std::int64_t part = 0; part < spec.parts; ++part) {
        pieces.push_back(
            {.file = fmt::format("rank_{:05}.safetensors", layout.rank),
             .key = fmt::format("{}.{}{}", spec.name, name_of(kept),
                                spec.parts > 1 ? fmt::format(".{}", part) : ""),
             .tensor = spec.name,
             .kept = kept,
             .shape = spec.shape,
             .dimension = spec.cut_dimension,
             .part = part,
             .parts = spec.parts,
             .start = parameter.is_cut() ? parameter.cut_start() : 0,
             .stop = parameter.is_cut() ? parameter.cut_start() + parameter.cut_valid() : 1});
      }
    }
  }
  return pieces;
}

}  // namespace tandem
