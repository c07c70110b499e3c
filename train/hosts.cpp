#include "train/hosts.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <limits>

namespace tandem {

namespace {

constexpr std::size_t kNameLength = 64;

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

namespace fs = std::filesystem;

/// The names that a version of control groups has for the same things.
struct CgroupFiles {
  const char* limit;
  const char* used;
  const char* cache;  ///< in memory.stat: files that the kernel drops when memory is short
};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

/// The number in a one-line file, or `otherwise` ("max", or no such file).
std::size_t number_in(const fs::path& path, std::size_t otherwise) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : otherwise;
}

/// The number behind `key` in a file of lines "key number"; 0 if it is not there.
std::size_t number_of(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::size_t value = 0;
  for (std::string name; file >> name >> value;) {
    if (name == key) {
      return value;
    }
  }
  return 0;
}

std::size_t left_in_group(const fs::path& group, const CgroupFiles& files) {
  const std::size_t limit = number_in(group / files.limit, kUnlimited);
  if (limit == kUnlimited) {
    return kUnlimited;
  }
  const std::size_t used = number_in(group / files.used, 0);
  const std::size_t busy = used - std::min(used, number_of(group / "memory.stat", files.cache));
  return limit - std::min(limit, busy);
}

/// The least over the group `path` and its ancestors. Inside a container the path may be the
/// host's: what is not there limits nothing.
std::size_t left_in_tree(const fs::path& base, const fs::path& path, const CgroupFiles& files) {
  std::size_t left = left_in_group(base, files);
  fs::path group = base;
  for (const fs::path& part : path.relative_path()) {
    group /= part;
    left = std::min(left, left_in_group(group, files));
  }
  return left;
}

}  // namespace

std::vector<std::string> HostMap::of(const std::vector<int>& ranks) const {
  std::vector<std::string> hosts;
  for (const int rank : ranks) {
    const std::string& name = names[static_cast<std::size_t>(rank)];
    if (std::find(hosts.begin(), hosts.end(), name) == hosts.end()) {
      hosts.push_back(name);
    }
  }
  return hosts;
}

HostMap map_hosts(Communicator& control) {
  std::array<std::uint8_t, kNameLength> own{};
  gethostname(reinterpret_cast<char*>(own.data()), own.size() - 1);
  std::vector<std::uint8_t> all(own.size() * static_cast<std::size_t>(control.size()));
  control
      .all_gather(Tensor::of<std::uint8_t>(own, {1, kNameLength}),
                  Tensor::of<std::uint8_t>(all, {control.size(), kNameLength}),
                  {.label = "host names"})
      .wait_host();
  HostMap map;
  for (int rank = 0; rank < control.size(); ++rank) {
    map.names.emplace_back(reinterpret_cast<const char*>(all.data()) +
                           static_cast<std::size_t>(rank) * kNameLength);
  }
  const std::string& here = map.names[static_cast<std::size_t>(control.index())];
  map.ranks_here = static_cast<int>(std::count(map.names.begin(), map.names.end(), here));
  map.index_here =
      static_cast<int>(std::count(map.names.begin(), map.names.begin() + control.index(), here));
  return map;
}

std::vector<RankCpus> gather_cpus(Communicator& control, int threads) {
  static_assert(sizeof(RankCpus) == 2 * sizeof(std::int32_t));
  RankCpus own{threads, allowed_cpus()};
  std::vector<RankCpus> all(static_cast<std::size_t>(control.size()));
  control
      .all_gather(Tensor(&own, DType::kI32, {1, 2}),
                  Tensor(all.data(), DType::kI32, {control.size(), 2}),
                  {.label = "CPUs of the ranks"})
      .wait_host();
  return all;
}

std::optional<std::string> cpu_warning(const std::vector<RankCpus>& ranks) {
  const auto is_short = [](const RankCpus& rank) { return rank.threads > rank.cpus; };
  const auto first = std::find_if(ranks.begin(), ranks.end(), is_short);
  if (first == ranks.end()) {
    return std::nullopt;
  }
  const auto how_many = std::count_if(ranks.begin(), ranks.end(), is_short);
  const std::string where = how_many == std::ssize(ranks)
                                ? (how_many == 1 ? "" : "on every rank ")
                                : fmt::format("on {} of {} ranks, first on rank {}, ", how_many,
                                              ranks.size(), first - ranks.begin());
  return fmt::format(
      "{}{} threads share {} allowed CPU{}. Open MPI binds 1 or 2 ranks to one core each: start "
      "with mpirun --bind-to none, or set threads: {}",
      where, first->threads, first->cpus, first->cpus == 1 ? "" : "s", first->cpus);
}

std::optional<std::string> host_warning(const HostMap& hosts, const Layout& layout) {
  std::vector<int> first;
  int wide = 0;
  for (int i = 0; i < layout.dp; ++i) {
    const std::vector<int> group = Layout{layout.tp, layout.dp, i * layout.tp}.tp_group();
    if (hosts.of(group).size() > 1 && wide++ == 0) {
      first = group;
    }
  }
  if (wide == 0) {
    return std::nullopt;
  }
  return fmt::format(
      "{} of {} tensor-parallel groups span hosts, the first {{{}}} {}: every layer's collective "
      "crosses the network. Place ranks by slot (mpirun --map-by slot) and give each host slots=K "
      "in the hostfile, K a multiple of parallel.tp",
      wide, layout.dp, fmt::join(first, ","), fmt::join(hosts.of(first), ", "));
}

int allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return 1;
  }
  return std::max(1, CPU_COUNT(&set));
}

std::size_t cgroup_memory(const fs::path& membership, const fs::path& root) {
  std::size_t left = kUnlimited;
  std::ifstream groups(membership);
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/a/b", version 2: "0::/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path path = line.substr(second + 1);
    if (controllers == ",,") {
      left = std::min({left, left_in_tree(root, path, kVersion2),
                       left_in_tree(root / "unified", path, kVersion2)});
    } else if (controllers.find(",memory,") != std::string::npos) {
      left = std::min(left, left_in_tree(root / "memory", path, kVersion1));
    }
  }
  return left;
}

std::size_t available_memory() {
  std::size_t available = kUnlimited;
  std::ifstream info("/proc/meminfo");
  for (std::string key; info >> key;) {
    std::size_t kib = 0;
    if (key == "MemAvailable:" && info >> kib) {
      available = kib * 1024;
    }
  }
  return std::min(available, cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup"));
}

}  // namespace tandem
