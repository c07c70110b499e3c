#include "train/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace tandem {

namespace {

constexpr std::size_t kIdentityBytes = 64;
constexpr std::size_t kReasonBytes = 512;

/// Two ranks whose own GPU would be the same one.
std::optional<std::pair<int, int>> sharers_of_one_gpu(const std::vector<RankGpus>& ranks) {
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    for (std::size_t b = a + 1; b < ranks.size(); ++b) {
      if (ranks[a].gpu == ranks[b].gpu) {
        return std::pair(static_cast<int>(a), static_cast<int>(b));
      }
    }
  }
  return std::nullopt;
}

void refuse_sharers(const std::vector<RankGpus>& ranks, std::pair<int, int> pair, bool threads) {
  const RankGpus& first = ranks[static_cast<std::size_t>(pair.first)];
  const auto here = std::count_if(ranks.begin(), ranks.end(),
                                  [&](const RankGpus& r) { return r.host == first.host; });
  throw ConfigError(fmt::format(
      "parallel.comm: nccl: ranks {} and {} would both be on GPU {} of {}, which has {} for {} "
      "ranks, and NCCL takes one rank per GPU. Start fewer ranks there, or let them share it: "
      "write parallel.comm: {}",
      pair.first, pair.second, first.ordinal, first.host,
      first.visible == 1 ? "1 GPU" : fmt::format("{} GPUs", first.visible), here,
      threads ? "local" : "mpi"));
}

/// The words of a buffer that was padded with zeros.
std::string text_of(const std::uint8_t* bytes) { return reinterpret_cast<const char*>(bytes); }

std::vector<RankGpus>::const_iterator first_blind(const std::vector<RankGpus>& ranks) {
  return std::find_if(ranks.begin(), ranks.end(), [](const RankGpus& r) { return r.visible == 0; });
}

}  // namespace

Placement place_rank(DeviceChoice device, CommChoice comm, bool threads,
                     const std::vector<RankGpus>& ranks, int rank) {
  const CommChoice host_comm = threads ? CommChoice::kLocal : CommChoice::kMpi;
  const auto blind = first_blind(ranks);
  const bool wanted = device == DeviceChoice::kCuda || device == DeviceChoice::kAuto;
  if (device == DeviceChoice::kCuda && blind != ranks.end()) {
    throw ConfigError(fmt::format(
        "device: cuda: rank {} on {} has no GPU. Write device: cpu, or auto to take what is there",
        blind - ranks.begin(), blind->host));
  }
  if (!wanted || blind != ranks.end()) {
    if (comm == CommChoice::kNccl) {
      throw ConfigError(fmt::format(
          "parallel.comm: nccl: NCCL connects GPUs, and {}. Write auto or {}",
          wanted ? fmt::format("rank {} on {} has none", blind - ranks.begin(), blind->host)
                 : "device is not cuda",
          threads ? "local (ranks as threads)" : "mpi (under mpirun)"));
    }
    return {
        .device = device == DeviceChoice::kReference ? DeviceKind::kReference : DeviceKind::kCpu,
        .comm = comm == CommChoice::kAuto ? host_comm : comm};
  }

  const auto without =
      std::find_if(ranks.begin(), ranks.end(), [](const RankGpus& r) { return !r.nccl; });
  if (comm == CommChoice::kNccl && without != ranks.end()) {
    throw ConfigError(fmt::format(
        "parallel.comm: nccl: the CUDA module on {} was built without NCCL. Build it where nccl.h "
        "and libnccl.so are, or write {}",
        without->host, threads ? "local (ranks as threads)" : "mpi (under mpirun)"));
  }
  const auto shared = sharers_of_one_gpu(ranks);
  if (comm == CommChoice::kNccl && shared) {
    refuse_sharers(ranks, *shared, threads);
  }
  Placement placement{.device = DeviceKind::kCuda, .comm = comm};
  if (comm == CommChoice::kAuto) {
    const bool apart = !shared && without == ranks.end() && ranks.size() > 1;
    placement.comm = apart ? CommChoice::kNccl : host_comm;
  }
  const bool together = placement.comm == CommChoice::kLocal;
  const auto gpu_of = [&](const RankGpus& r) { return together ? r.first : r.gpu; };
  const RankGpus& own = ranks[static_cast<std::size_t>(rank)];
  placement.ordinal = together ? 0 : own.ordinal;
  const auto shares = [&](const RankGpus& r) { return gpu_of(r) == gpu_of(own); };
  placement.sharers = static_cast<int>(std::count_if(ranks.begin(), ranks.end(), shares));
  placement.first_on_gpu = std::none_of(ranks.begin(), ranks.begin() + rank, shares);
  return placement;
}

std::optional<std::string> unused_gpus(const std::vector<RankGpus>& ranks) {
  const auto blind = first_blind(ranks);
  if (blind == ranks.end() ||
      std::none_of(ranks.begin(), ranks.end(), [](const RankGpus& r) { return r.shown; })) {
    return std::nullopt;
  }
  return fmt::format("no GPU is used: rank {} on {} cannot use one: {}", blind - ranks.begin(),
                     blind->host, blind->missing);
}

std::vector<RankGpus> gather_gpus(Communicator& control, const HostMap& hosts,
                                  const CudaFound& found) {
  const int visible = found.module == nullptr ? 0 : static_cast<int>(found.gpus.size());
  const int ordinal = visible == 0 ? 0 : hosts.index_here % visible;
  struct Message {
    std::array<std::uint8_t, kIdentityBytes> gpu{}, first{};
    std::array<std::uint8_t, kReasonBytes> missing{};
    std::int32_t visible = 0, ordinal = 0, nccl = 0, shown = 0;
  };
  Message own{.visible = visible, .ordinal = ordinal, .shown = found.gpus.empty() ? 0 : 1};
  own.nccl = found.module != nullptr && found.module->make_nccl_world != nullptr ? 1 : 0;
  const auto put = [](const std::string& text, auto& to) {
    std::copy_n(text.begin(), std::min(text.size(), to.size() - 1), to.begin());
  };
  put(found.missing, own.missing);
  if (visible > 0) {
    put(found.gpus[static_cast<std::size_t>(ordinal)], own.gpu);
    put(found.gpus.front(), own.first);
  }
  std::vector<Message> all(static_cast<std::size_t>(control.size()));
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Message));
  control
      .all_gather(Tensor(&own, DType::kU8, {1, kBytes}),
                  Tensor(all.data(), DType::kU8, {control.size(), kBytes}),
                  {.label = "GPUs of the hosts"})
      .wait_host();
  std::vector<RankGpus> ranks;
  for (std::size_t r = 0; r < all.size(); ++r) {
    ranks.push_back({hosts.names[r], all[r].visible, all[r].ordinal, text_of(all[r].gpu.data()),
                     text_of(all[r].first.data()), all[r].nccl != 0, all[r].shown != 0,
                     text_of(all[r].missing.data())});
  }
  return ranks;
}

}  // namespace tandem
