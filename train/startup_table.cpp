#include "train/startup_table.h"

#include <fmt/format.h>

#include "train/memory.h"

namespace tandem {

namespace {

std::string join(const std::vector<int>& values) {
  return fmt::format("{{{}}}", fmt::join(values, ","));
}

/// Every group of one axis: "{0,1} {2,3}".
std::string groups_text(const Layout& layout, std::vector<int> (Layout::*group)() const) {
  std::string text;
  std::vector<bool> listed(static_cast<std::size_t>(layout.world()), false);
  for (int rank = 0; rank < layout.world(); ++rank) {
    const std::vector<int> members = (Layout{layout.tp, layout.dp, rank}.*group)();
    if (!listed[static_cast<std::size_t>(members.front())]) {
      listed[static_cast<std::size_t>(members.front())] = true;
      text += (text.empty() ? "" : " ") + join(members);
    }
  }
  return text;
}

std::string collectives_text(const Placement& placement) {
  switch (placement.comm) {
    case CommChoice::kNccl:
      return "NCCL, a GPU for every rank";
    case CommChoice::kMpi:
      return "MPI, staged through host memory";
    default:
      return fmt::format("in the memory of GPU 0, which all {} ranks share", placement.sharers);
  }
}

}  // namespace

Table startup_table(Session& session, const Config& config, const RunFacts& facts) {
  const RankContext& rank = session.rank();
  const Layout& layout = rank.layout;
  Table table{fmt::format("tandem train: {}", config.name), {}};
  const auto row = [&](const char* label, std::string value) {
    table.rows.emplace_back(label, std::move(value));
  };
  row("layout", fmt::format("tp {} x dp {} = {} rank{}{}{}", layout.tp, layout.dp, layout.world(),
                            layout.world() == 1 ? "" : "s",
                            config.parallel.sequence_parallel ? ", sequence parallel" : "",
                            config.parallel.zero == 1 ? ", ZeRO-1" : ""));
  row("groups", fmt::format("tp {}   dp {}", groups_text(layout, &Layout::tp_group),
                            groups_text(layout, &Layout::dp_group)));
  std::vector<int> everyone = layout.world_group();
  row("ranks", fmt::format("{} on {}",
                           session.world().kind() == "mpi" ? "processes (mpi)"
                                                           : "threads of one process (local)",
                           fmt::join(session.hosts().of(everyone), ", ")));
  row("device", rank.device->describe());
  if (session.placement().device == DeviceKind::kCuda && layout.world() > 1) {
    row("collectives", collectives_text(session.placement()));
  }
  row("CPUs", fmt::format("{} allowed for rank 0, {} thread{} per rank", allowed_cpus(),
                          rank.threads, rank.threads == 1 ? "" : "s"));
  if (facts.roof > 0.0) {
    row("roof",
        facts.gpus > 0.0
            ? fmt::format("{:.0f} GFLOP/s matmul, measured on {:.0f} GPU{}", facts.roof / 1e9,
                          facts.gpus, facts.gpus == 1.0 ? "" : "s")
            : fmt::format("{:.0f} GFLOP/s matmul, measured on {}", facts.roof / 1e9,
                          session.hosts().of(everyone).size() == 1 ? "this host" : "these hosts"));
  }
  row("model", fmt::format("{} parameters, {} FLOPs per token", short_number(facts.parameters),
                           short_number(facts.flops_per_token)));
  row("data", facts.data);
  if (!facts.start.empty()) {
    row("start", facts.start);
  }
  row("batch", fmt::format("{} sequences = {} per micro-batch x {} data rank{} x {} accumulated",
                           config.train.global_batch, config.train.micro_batch, layout.dp,
                           layout.dp == 1 ? "" : "s", config.accumulation()));
  const auto memory = [&](const char* label, const Arena& arena, const HostMemory& beside) {
    const RankMemory of_rank{arena, beside};
    std::vector<std::string> parts;
    for (const auto& [name, bytes] : categories(of_rank)) {
      if (bytes > 0) {
        parts.push_back(fmt::format("{} {}", name, bytes_text(bytes)));
      }
    }
    row(label, fmt::format("{} per rank: {}", bytes_text(of_rank.total()), fmt::join(parts, ", ")));
  };
  if (rank.device->host_memory()) {
    memory("memory", *facts.memory, facts.beside);
  } else {
    memory("memory", *facts.memory, {});
    memory("host memory", Arena(), facts.beside);
  }
  if (!facts.directory.empty()) {
    row("run", facts.directory);
  }
  return table;
}

}  // namespace tandem
