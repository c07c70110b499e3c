#include "train/hosts.h"

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

/// The number in a one-line file, or nothing ("max", or no such file).
std::size_t number_in(const std::string& path, std::size_t otherwise) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : otherwise;
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

int allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return 1;
  }
  return std::max(1, CPU_COUNT(&set));
}

std::size_t available_memory() {
  std::size_t available = std::numeric_limits<std::size_t>::max();
  std::ifstream info("/proc/meminfo");
  for (std::string key; info >> key;) {
    std::size_t kib = 0;
    if (key == "MemAvailable:" && info >> kib) {
      available = kib * 1024;
    }
  }
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  const std::size_t limit = number_in("/sys/fs/cgroup/memory.max", kNone);
  const std::size_t used = number_in("/sys/fs/cgroup/memory.current", 0);
  if (limit != kNone) {
    available = std::min(available, limit - std::min(limit, used));
  }
  return available;
}

}  // namespace tandem
