// The context embedding of the language model: h_t = sum over j of E_j[x_(t-j)], one table per
// place in the history, cut over the vocabulary. A rank sums the ids it owns; the partial sums meet
// in the region's reduction (g), whose adjoint is the identity.
#pragma once

#include <cstdint>
#include <string>

#include "layers/tokens.h"
#include "parallel/parameter_store.h"

namespace tandem {

class ContextEmbedding {
 public:
  struct Options {
    std::string name;
    std::int64_t context = 0;
    std::int64_t vocab = 0;
    std::int64_t hidden = 0;
    bool sequence_parallel = false;
  };
  struct Context {
    Tensor ids;        ///< [rows, context] int32, as given to forward
    Tensor partial;    ///< [max_rows, hidden]
    Tensor scattered;  ///< [shard_rows, hidden]; sequence parallel only
    Tensor gathered;   ///< [max_rows, hidden] gradient; sequence parallel only
    Tensor workspace;  ///< int32, for backward's sorted order
  };

  ContextEmbedding(ParameterStore& store, const Options& options);
  Context make_context(Arena& arena, const Precision& precision, std::int64_t max_rows,
                       std::int64_t shard_rows) const;

  /// ids [rows, context] on the device -> [shard rows, hidden], in the context.
  Tensor forward(const Pass& pass, Context& context, const Tensor& ids) const;
  void backward(const Pass& pass, Context& context, const Tensor& gradient) const;

 private:
  Options options_;
  Parameter* weight_;
  TokenRegion region_;
};

}  // namespace tandem
