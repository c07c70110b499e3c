#include "train/host_memory.h"

#include <vector>

#include "core/cpu/footprint.h"
#include "parallel/mpi/mpi_buffers.h"
#include "train/checkpoint/save.h"
#include "train/data/source.h"

namespace tandem {

namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// Measured (tests/tools/plan_memory.py): the program itself, and what Open MPI takes on top of that
// before the first message.
constexpr double kProcess = 0.75 * kMiB;
constexpr double kMpi = 3.15 * kMiB;

/// Of a rank's groups: the tensor-parallel, the data-parallel, and all ranks, which exchange short
/// messages only.
std::size_t message_buffers(const ParallelConfig& parallel) {
  return mpi_group_bytes(parallel.tp, true) + mpi_group_bytes(parallel.dp, true) +
         mpi_group_bytes(parallel.tp * parallel.dp, false);
}

std::vector<cpu::ProductSize> products_of(const Config& config, std::int64_t rows) {
  const ModelConfig& model = config.model;
  const std::int64_t ffn = model.ffn / config.parallel.tp;
  std::vector<cpu::ProductSize> products;
  const auto linear = [&](std::int64_t out, std::int64_t in, bool bias) {
    products.push_back(
        {.rows = rows, .columns = out, .inner = in, .transpose_b = true, .bias = bias});
    products.push_back({.rows = rows, .columns = in, .inner = out});
    for (int writes = 0; writes < (config.accumulation() > 1 ? 2 : 1); ++writes) {
      products.push_back({.rows = out,
                          .columns = in,
                          .inner = rows,
                          .sums_in_main = true,
                          .accumulates = writes > 0});
    }
  };
  linear(model.activation == Activation::kSwiglu ? 2 * ffn : ffn, model.hidden, model.bias);
  linear(model.hidden, ffn, false);
  if (model.kind == ModelKind::kMlpLm) {
    linear((model.vocab_size + config.parallel.tp - 1) / config.parallel.tp, model.hidden, false);
  }
  return products;
}

}  // namespace

HostMemory host_memory(const Config& config, const ParameterStore& store,
                       const Precision& precision, const HostUse& use) {
  HostMemory memory{.data = data_buffer_bytes(config, precision.storage)};
  if (config.checkpoint.every > 0) {
    memory.checkpoint = CheckpointSaver::copy_bytes(store);
  }
  if (use.threads > 0) {
    const cpu::Footprint footprint = cpu::footprint(products_of(config, max_rows(config)),
                                                    precision.storage, use.threads, use.row_counts);
    const double process = kProcess + static_cast<double>(footprint.process);
    const double libraries =
        use.processes ? process + kMpi + static_cast<double>(message_buffers(config.parallel))
                      : process / config.world();
    memory.libraries = static_cast<std::size_t>(libraries) + footprint.device;
  }
  return memory;
}

}  // namespace tandem
