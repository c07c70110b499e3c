#include "tools/bench/idle.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace tandem {

namespace {

std::optional<double> busy_now() {
  std::ifstream stat("/proc/stat");
  return busy_seconds(stat, static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

/// Of this process, on all its threads.
double own_now() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

std::optional<double> busy_seconds(std::istream& stat, double ticks) {
  std::string name;
  double user = 0.0, nice = 0.0, system = 0.0, idle = 0.0, waiting = 0.0, irq = 0.0, softirq = 0.0,
         stolen = 0.0;
  if (!(stat >> name >> user >> nice >> system >> idle >> waiting >> irq >> softirq >> stolen) ||
      name != "cpu" || idle == 0.0) {
    return std::nullopt;
  }
  return (user + nice + system + irq + softirq + stolen) / ticks;
}

OtherProcesses::OtherProcesses()
    : start_(std::chrono::steady_clock::now()), busy_(busy_now()), own_(own_now()) {}

std::optional<double> OtherProcesses::cpus(Communicator& everyone, bool processes) const {
  double own = processes || everyone.index() == 0 ? own_now() - own_ : 0.0;
  everyone.all_reduce(Tensor(&own, DType::kF64, {1}), {.label = "bench hardware"}).wait_host();
  const std::optional<double> busy = busy_now();
  if (!busy || !busy_) {
    return std::nullopt;
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start_;
  return std::max(0.0, *busy - *busy_ - own) / wall.count();
}

}  // namespace tandem
