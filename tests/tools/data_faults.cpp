// Faults in the rows of a step and in the initial weights.
#include <algorithm>

#include "tests/tools/faulty.h"
#include "train/checkpoint/load.h"

namespace tandem::test {

namespace {

Fault data_fault(const std::string& name, const std::vector<std::string>& named,
                 const std::function<void(std::vector<MicroBatch>&, const Layout&)>& change) {
  return {.name = name,
          .config = fault_config(),
          .named = named,
          .data = [=](const Config&, const Layout& layout) -> ChangeStep {
            return [=](std::vector<MicroBatch>& batches) { change(batches, layout); };
          }};
}

void copy_row(const MicroBatch& batch, std::int64_t from, std::int64_t to) {
  for (const Tensor& tensor : {batch.ids, batch.targets, batch.row_keys}) {
    const std::size_t bytes = tensor.bytes() / static_cast<std::size_t>(tensor.dim(0));
    std::copy_n(tensor.data + static_cast<std::size_t>(from) * bytes, bytes,
                tensor.data + static_cast<std::size_t>(to) * bytes);
  }
}

/// The first micro-batch with two rows or more; every rank of a tensor-parallel group finds the
/// same.
MicroBatch& full_batch(std::vector<MicroBatch>& batches) {
  return *std::find_if(batches.begin(), batches.end(), [](const auto& b) { return b.tokens > 1; });
}

bool has_full_batch(const std::vector<MicroBatch>& batches) {
  return std::any_of(batches.begin(), batches.end(), [](const auto& b) { return b.tokens > 1; });
}

Fault weight_fault(const std::string& name, const std::vector<std::string>& named,
                   const std::function<void(RankContext&, TrainState&)>& prepare) {
  return {.name = name, .config = fault_config(), .named = named, .prepare = prepare};
}

/// What every rank of the tensor-parallel group holds of a parameter.
std::vector<double> all_shards(RankContext& rank, const Parameter& parameter) {
  std::vector<double> own = verify::read_tensor(rank, parameter.shards.front().master);
  std::vector<double> all(own.size() * static_cast<std::size_t>(rank.layout.tp));
  rank.tensor_parallel
      ->all_gather(Tensor::of<double>(own, {std::ssize(own)}),
                   Tensor::of<double>(all, {std::ssize(all)}), {.label = "test"})
      .wait_host();
  return all;
}

/// This rank takes the shard of another.
void take_shard(RankContext& rank, TrainState& state, const std::string& name, int from) {
  const Parameter& parameter = state.store.find(name);
  const std::vector<double> all = all_shards(rank, parameter);
  const auto size = static_cast<std::ptrdiff_t>(parameter.local_shape().numel());
  set_kept(rank, parameter, Kept::kMaster,
           {all.begin() + from * size, all.begin() + (from + 1) * size});
}

}  // namespace

std::vector<Fault> data_faults() {
  std::vector<Fault> faults = {
      data_fault("a token counted twice", {"counted again", "data source"},
                 [](std::vector<MicroBatch>& batches, const Layout& layout) {
                   if (layout.dp_rank() == 1 && has_full_batch(batches)) {
                     copy_row(full_batch(batches), 0, 1);
                   }
                 }),
      data_fault("a row dropped", {"missing", "data source"},
                 [](std::vector<MicroBatch>& batches, const Layout& layout) {
                   if (layout.dp_rank() == 1 && has_full_batch(batches)) {
                     MicroBatch& batch = full_batch(batches);
                     batch.tokens -= 1;
                     batch.targets.as<std::int32_t>()[batch.tokens] = -1;
                     batch.row_keys.as<std::int64_t>()[batch.tokens] = -1;
                   }
                 }),
      data_fault("a micro-batch twice, another not at all", {"missing", "counted again"},
                 [](std::vector<MicroBatch>& batches, const Layout&) { batches[0] = batches[1]; }),
      data_fault("row keys that start anew in every micro-batch", {"rows of step 1"},
                 [](std::vector<MicroBatch>& batches, const Layout&) {
                   for (MicroBatch& batch : batches) {
                     for (std::int64_t r = 0; r < batch.tokens; ++r) {
                       batch.row_keys.as<std::int64_t>()[r] = r;
                     }
                   }
                 }),
      data_fault("targets of a data rank shifted by one", {"targets", "data source"},
                 [](std::vector<MicroBatch>& batches, const Layout& layout) {
                   for (MicroBatch& batch : batches) {
                     const auto targets = batch.targets.span<std::int32_t>();
                     if (layout.dp_rank() == 1 && batch.tokens > 0) {
                       std::rotate(targets.begin(), targets.begin() + 1,
                                   targets.begin() + batch.tokens);
                     }
                   }
                 }),
      data_fault("history one token short", {"ids", "data source"},
                 [](std::vector<MicroBatch>& batches, const Layout&) {
                   for (MicroBatch& batch : batches) {
                     for (std::int64_t r = 0; r < batch.rows; ++r) {
                       batch.ids.as<std::int32_t>()[(r + 1) * batch.ids.dim(1) - 1] = -1;
                     }
                   }
                 }),
      data_fault("tensor-parallel ranks with different targets", {"targets", "data source"},
                 [](std::vector<MicroBatch>& batches, const Layout& layout) {
                   if (layout.tp_rank() == 1 && has_full_batch(batches)) {
                     const MicroBatch& batch = full_batch(batches);
                     batch.targets.as<std::int32_t>()[0] =
                         (batch.targets.as<std::int32_t>()[0] + 1) % 49;
                   }
                 }),
      weight_fault("a shard drawn from its local index",
                   {"initial layers.0.fc1.weight", "tensor-parallel rank 1 only"},
                   [](RankContext& rank, TrainState& state) {
                     take_shard(rank, state, "layers.0.fc1.weight", 0);
                   }),
      weight_fault("two shards of fc2 swapped", {"initial layers.1.fc2.weight"},
                   [](RankContext& rank, TrainState& state) {
                     take_shard(rank, state, "layers.1.fc2.weight", 1 - rank.layout.tp_rank());
                   }),
      weight_fault("vocabulary shards of the head swapped", {"initial head.weight"},
                   [](RankContext& rank, TrainState& state) {
                     take_shard(rank, state, "head.weight", 1 - rank.layout.tp_rank());
                   }),
      weight_fault("a replicated weight that differs by tensor-parallel rank",
                   {"initial layers.1.norm.weight", "same on every rank"},
                   [](RankContext& rank, TrainState& state) {
                     const Parameter& parameter = state.store.find("layers.1.norm.weight");
                     parameter.shards.front().master.as<float>()[3] +=
                         rank.layout.tp_rank() == 1 ? 1e-3f : 0.0f;
                   }),
      weight_fault("weights that differ by data rank",
                   {"initial layers.0.fc2.weight", "same on every rank"},
                   [](RankContext& rank, TrainState& state) {
                     const Parameter& parameter = state.store.find("layers.0.fc2.weight");
                     parameter.shards.front().master.as<float>()[3] +=
                         rank.layout.dp_rank() == 1 ? 1e-3f : 0.0f;
                   })};
  faults.push_back({.name = "data ranks with the same samples",
                    .config = fault_config(),
                    .named = {"missing", "which samples each data rank"},
                    .data = [](const Config& config, const Layout& layout) -> ChangeStep {
                      const Layout first{layout.tp, layout.dp, layout.tp_rank()};
                      std::shared_ptr<DataSource> other = make_data_source(config, first);
                      return [other](std::vector<MicroBatch>& batches) {
                        const auto same = other->fetch_step(0);
                        batches.assign(same.begin(), same.end());
                      };
                    }});
  return faults;
}

}  // namespace tandem::test
