#include "train/session.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "train/agree.h"
#include "train/memory.h"

namespace tandem {

namespace {

/// The most that the key `threads` takes; a variable that says more is a slip and counts as unset.
constexpr long kMostThreads = 4096;

int threads_per_rank(const Config& config, const HostMap& hosts) {
  if (config.threads > 0) {
    return config.threads;
  }
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const long threads = std::strtol(text, nullptr, 10);  // of "4,2", threads within threads, 4
    if (threads > 0 && threads <= kMostThreads) {
      return static_cast<int>(threads);
    }
  }
  return std::max(1, allowed_cpus() / hosts.ranks_here);
}

bool may_use_gpu(const Config& config) {
  return config.device == DeviceChoice::kCuda || config.device == DeviceChoice::kAuto;
}

/// Whether a run without GPUs is what the config asks for where there are none.
bool may_do_without_gpu(const Config& config) {
  return config.device == DeviceChoice::kAuto && config.parallel.comm != CommChoice::kNccl;
}

}  // namespace

void check_device(const Config& config) {
  if (!may_use_gpu(config)) {
    return;
  }
  const CudaFound found = find_cuda();
  if (found.module == nullptr && config.device == DeviceChoice::kCuda) {
    throw ConfigError("device: cuda: " + found.missing +
                      ". Write device: cpu, or auto to take what is there.");
  }
  if (found.module == nullptr && config.parallel.comm == CommChoice::kNccl) {
    throw ConfigError("parallel.comm: nccl: " + found.missing +
                      ". Write auto, mpi (under mpirun) or local (ranks as threads).");
  }
}

Session::Session(World& world, const Config& config, Communicator& control, Ledger& ledger,
                 Logger log, std::unique_ptr<Device> device)
    : world_(&world),
      hosts_(map_hosts(control)),
      log_(std::move(log)),
      profiler_(config.profile.nvtx, &world.recorder().ranges()),
      device_(std::move(device)) {
  rank_.layout = {config.parallel.tp, config.parallel.dp, world.rank()};
  rank_.threads = threads_per_rank(config, hosts_);
  rank_.control = &control;
  profiler_.name_thread("rank " + std::to_string(world.rank()));
  if (device_) {
    placement_.comm = world.kind() == "mpi" ? CommChoice::kMpi : CommChoice::kLocal;
  } else {
    place(config, control);
  }
  compute_ = device_->make_stream("compute");
  rank_.device = device_.get();
  rank_.compute = compute_.get();
  rank_.ledger = &ledger;
  rank_.profiler = &profiler_;
  rank_.recorder = &world.recorder();
  rank_.log = &log_;
  if (placement_.comm == CommChoice::kNccl) {
    nccl_ =
        cuda_->make_nccl_world(world, control, *device_, {.timeout_s = config.parallel.timeout_s});
  }
  World& groups = nccl_ ? *nccl_ : world;
  tensor_parallel_ =
      groups.make_group("tp", rank_.layout.tp_group(), *device_, &ledger, &profiler_);
  data_parallel_ = groups.make_group("dp", rank_.layout.dp_group(), *device_, &ledger, &profiler_);
  rank_.tensor_parallel = tensor_parallel_.get();
  rank_.data_parallel = data_parallel_.get();
}

void Session::place(const Config& config, Communicator& control) {
  std::vector<RankGpus> ranks(static_cast<std::size_t>(world_->size()));
  if (may_use_gpu(config)) {
    const CudaFound found = find_cuda();
    cuda_ = found.module;
    ranks = gather_gpus(control, hosts_, found);
  }
  const auto place_all = [&] {
    tandem::agree(control, [&] {
      placement_ = place_rank(config.device, config.parallel.comm, world_->kind() == "local", ranks,
                              world_->rank());
    });
  };
  place_all();
  const auto unused = placement_.device == DeviceKind::kCuda ? std::nullopt : unused_gpus(ranks);
  if (unused && world_->rank() == 0) {
    log_.warn(*unused);
  }
  if (placement_.device == DeviceKind::kCuda && !make_gpu(config, control)) {
    for (RankGpus& rank : ranks) {
      rank.visible = 0;
    }
    place_all();
  }
  if (placement_.device == DeviceKind::kReference) {
    device_ = make_reference_device(rank_.threads);
  } else if (placement_.device == DeviceKind::kCpu) {
    device_ = make_cpu_device(rank_.threads);
  }
}

bool Session::make_gpu(const Config& config, Communicator& control) {
  std::string problem;
  try {
    device_ = cuda_->make_device({.ordinal = placement_.ordinal, .tf32 = config.cuda.tf32});
  } catch (const std::exception& error) {
    problem = "GPU " + std::to_string(placement_.ordinal) + " of " +
              hosts_.names[static_cast<std::size_t>(world_->rank())] +
              " cannot be used: " + error.what();
  }
  if (!may_do_without_gpu(config)) {
    tandem::agree(control, [&] {
      if (!problem.empty()) {
        throw ConfigError(problem + ". Write device: cpu to do without it.");
      }
    });
    return true;
  }
  std::int64_t first = problem.empty() ? world_->size() : world_->rank();
  control
      .all_reduce(Tensor(&first, DType::kI64, {1}),
                  {.op = ReduceOp::kMin, .label = "GPUs that can be used"})
      .wait_host();
  if (first == world_->size()) {
    return true;
  }
  if (first == world_->rank()) {
    log_.warn("no GPU is used: " + problem);
  }
  device_.reset();
  return false;
}

void Session::capture(void (*CudaModule::*call)()) const {
  if (placement_.device != DeviceKind::kCuda) {
    return;
  }
  const auto meet = [&] { rank_.control->barrier({.label = "capture range"}).wait_host(); };
  meet();  // none is still in a step that is not to be recorded
  if (world_->kind() != "local" || world_->rank() == 0) {
    (cuda_->*call)();
  }
  meet();  // none is ahead in one that is, or is not
}

HostMemory Session::host_memory(const Config& config, const ParameterStore& store) const {
  return tandem::host_memory(config, store, rank_.precision,
                             {.threads = placement_.device == DeviceKind::kCpu ? rank_.threads : 0,
                              .processes = world_->kind() == "mpi"});
}

void Session::check_memory(const Config& config, const Arena& measured,
                           const HostMemory& beside) const {
  const auto check = [&](const RankMemory& memory, const SharedMemory& shared) {
    tandem::check_memory(config, rank_.layout, rank_.precision, memory, shared);
  };
  const SharedMemory host{available_memory(), hosts_.ranks_here};
  if (device_->host_memory()) {
    return check({measured, beside}, host);
  }
  check({measured, {}}, {device_->free_memory(), placement_.sharers, true});
  const Arena nothing;
  check({nothing, beside}, host);
}

}  // namespace tandem
