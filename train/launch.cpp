#include "train/launch.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <numeric>
#include <sstream>

#include "train/memory.h"
#include "train/stop_signal.h"

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

/// What this rank can see by itself; the rest is for all ranks together (place_rank).
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

/// A word as a shell would have to read it.
std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-_./=:,+%@").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) {
    return word;
  }
  std::string text = "'";
  for (const char c : word) {
    text += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return text + "'";
}

std::string command_text(int argc, const char* const* argv) {
  std::string text;
  for (int i = 0; i < argc; ++i) {
    text += (i == 0 ? "" : " ") + quoted(argv[i]);
  }
  return text;
}

void check_world(const Config& config, int launched, const std::string& command) {
  if (launched > 0 && config.world() != launched) {
    std::ostringstream text;
    text << launched << (launched == 1 ? " rank was" : " ranks were")
         << " started, but the layout parallel.tp=" << config.parallel.tp
         << " x parallel.dp=" << config.parallel.dp << " has " << config.world()
         << ". Start it as\n  mpirun -np " << config.world() << " " << command;
    throw ConfigError(text.str());
  }
  if (launched > 0 && config.parallel.comm == CommChoice::kLocal && launched > 1) {
    throw ConfigError(
        "parallel.comm: local runs ranks as threads of one process, but a launcher started " +
        std::to_string(launched) + " processes. Start it plainly, without mpirun:\n  " + command);
  }
  if (launched == 0 && config.parallel.comm == CommChoice::kMpi) {
    throw ConfigError("parallel.comm: mpi needs a launcher:\n  mpirun -np " +
                      std::to_string(config.world()) + " " + command);
  }
}

/// Processes read the config each on its own host: a file or a `--set` that differs would give them
/// other weights or collectives. Every rank holds its config against that of rank 0.
void agree_on_config(Communicator& control, const Config& config) {
  const std::string own = to_yaml(config);
  std::int64_t size = std::ssize(own);
  control.broadcast(Tensor(&size, DType::kI64, {1}), 0, {.label = "size of the config"})
      .wait_host();
  std::string first = own;
  first.resize(static_cast<std::size_t>(size));
  control.broadcast(Tensor(first.data(), DType::kU8, {size}), 0, {.label = "config"}).wait_host();
  agree(control, [&] {
    if (own != first) {
      const auto [here, there] = first_difference(own, first);
      throw PeerLost("rank " + std::to_string(control.index()) +
                     " was started with another config: `" + here + "` where rank 0 has `" + there +
                     "`. Give every rank the same file and the same arguments.");
    }
  });
}

/// Ranks share the streams, threads and processes alike: a message is one write.
void print_error(const std::string& program, const std::string& text) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::cout.flush();
  std::cerr << program + ": error: " + text + "\n" << std::flush;
}

/// Where launcher and MPI library do not understand each other, each process is a world of its own:
/// none can ask the others, and the launcher's first one speaks.
int refuse_worlds_of_one(const std::string& program, int launched, int size) {
  if (launched_rank() == 0) {
    print_error(program,
                "the launcher started " + std::to_string(launched) +
                    " ranks, but MPI made worlds of " + std::to_string(size) +
                    ": they do not speak the same PMI. Write srun --mpi=pmix (srun --mpi=list "
                    "says what there is), or start with the mpirun of the MPI library that this "
                    "program was built with.");
  }
  return static_cast<int>(ExitCode::kUsage);
}

/// In one piece and past the streams: the rank's own thread may hang while it holds them.
void write_line(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (written <= 0) {
      return;
    }
    done += static_cast<std::size_t>(written);
  }
}

WorldOptions world_options(const std::string& program, double timeout_s) {
  return {
      .timeout_s = timeout_s,
      .report = [program](const std::string& text) { write_line(program + ": error: " + text); },
      .warn = [program](const std::string& text) { write_line(program + ": warning: " + text); },
      .ends_process = true};
}

/// `launched`: ranks that a launcher started, or 0.
Config read_config(const ProgramDescription& program, const CommandLine& line, int launched) {
  const ConfigSource source = {
      .file = line.config,
      .overrides = line.overrides,
      .launched_ranks = launched > 0 ? std::optional(launched) : std::nullopt};
  return line.config.empty() ? parse_config(program.default_config, source) : load_config(source);
}

/// One rank from its first check to its exit code.
class Rank {
 public:
  Rank(const Program& program, World& world, int launched, int argc, const char* const* argv)
      : program_(program), world_(world), launched_(launched), argc_(argc), argv_(argv) {}

  int run() {
    try {
      return checked_run();
    } catch (const Silenced& silenced) {
      return static_cast<int>(silenced.code());
    } catch (const Agreed& error) {
      print_error(program_.description.name, error.what());
      return static_cast<int>(error.code());
    } catch (const HelpRequested& help) {
      if (world_.rank() == 0) {
        std::cout << help.text;
      }
      return 0;
    } catch (const NonFiniteError& error) {  // thrown by every rank after the same step
      if (world_.rank() == 0) {
        print_error(program_.description.name, error.what());
      }
      return static_cast<int>(error.code());
    } catch (const Error& error) {  // the world reports it, unless it has reported something else
      world_.abandon(error.what(), error.code());
      return static_cast<int>(error.code());
    } catch (const std::exception& error) {
      world_.abandon(error.what(), ExitCode::kInternal);
      return static_cast<int>(ExitCode::kInternal);
    }
  }

 private:
  int checked_run() {
    const std::unique_ptr<Device> host = make_reference_device(1);
    std::vector<int> everyone(static_cast<std::size_t>(world_.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    Ledger ledger;
    const std::unique_ptr<Communicator> control =
        world_.make_group("control", everyone, *host, &ledger, nullptr);
    CommandLine line;
    Config config;
    std::unique_ptr<Job> job;
    agree(*control, [&] {
      line = parse_command_line(program_.description, argc_, argv_);
      config = read_config(program_.description, line, launched_);
      check_world(config, launched_, command_text(argc_, argv_));
      check_device(config);
    });
    agree_on_config(*control, config);
    world_.set_timeout(config.parallel.timeout_s);  // data may take long to open
    agree(*control, [&] {
      job = program_.prepare(line, config, {config.parallel.tp, config.parallel.dp, world_.rank()});
    });
    Session session(world_, config, *control, ledger, Logger(world_.rank()));
    return job->run(session);
  }

  const Program& program_;
  World& world_;
  int launched_;
  int argc_;
  const char* const* argv_;
};

/// The code of a process whose ranks were threads: that of a rank that failed by itself, before
/// those that merely lost it.
int worst(const std::vector<int>& codes) {
  const int lost = static_cast<int>(ExitCode::kPeer);
  int result = 0;
  for (const int code : codes) {
    if (code != 0 && (result == 0 || result == lost)) {
      result = code;
    }
  }
  return result;
}

}  // namespace

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

void agree(Communicator& control, const std::function<void()>& check) {
  std::string problem;
  std::int64_t code = 0;
  try {
    check();  // HelpRequested passes: every rank has the same command line
  } catch (const Error& error) {
    problem = error.what();
    code = static_cast<std::int64_t>(error.code());
  } catch (const std::exception& error) {
    problem = error.what();
    code = static_cast<std::int64_t>(ExitCode::kInternal);
  }
  std::vector<std::int64_t> codes(static_cast<std::size_t>(control.size()));
  control
      .all_gather(Tensor(&code, DType::kI64, {1}),
                  Tensor::of<std::int64_t>(codes, {control.size()}),
                  {.label = "agreement on errors"})
      .wait_host();
  const auto reporter = std::max_element(codes.begin(), codes.end());  // the first of the worst
  if (*reporter == 0) {
    return;
  }
  if (reporter - codes.begin() == control.index()) {
    throw Agreed(static_cast<ExitCode>(code), problem);
  }
  throw Silenced(static_cast<ExitCode>(*reporter));
}

int launch(const Program& program, int argc, const char* const* argv) {
  const std::string& name = program.description.name;
  try {
    if (program.stops_itself) {
      catch_stop_signals();
    }
    const int launched = launched_ranks();
    if (launched > 0) {
      const std::unique_ptr<World> world =
          make_mpi_world(world_options(name, WorldOptions{}.timeout_s));
      if (world->size() != launched) {
        return refuse_worlds_of_one(name, launched, world->size());
      }
      return Rank(program, *world, launched, argc, argv).run();
    }
    // The number of ranks is in the config; each rank reads it again as it would under a launcher.
    const CommandLine line = parse_command_line(program.description, argc, argv);
    const Config config = read_config(program.description, line, 0);
    std::vector<int> codes(static_cast<std::size_t>(config.world()));
    const auto thrown = run_local_world(
        config.world(), world_options(name, config.parallel.timeout_s), [&](World& world) {
          codes[static_cast<std::size_t>(world.rank())] = Rank(program, world, 0, argc, argv).run();
        });
    for (const std::exception_ptr& exception : thrown) {
      if (exception) {
        std::rethrow_exception(exception);
      }
    }
    return worst(codes);
  } catch (const HelpRequested& help) {
    std::cout << help.text;
    return 0;
  } catch (const Error& error) {
    print_error(name, error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    print_error(name, error.what());
    return static_cast<int>(ExitCode::kInternal);
  }
}

int launch_alone(const ProgramDescription& program, int argc, const char* const* argv,
                 const std::function<int(const CommandLine&, const Config&)>& run) {
  try {
    const CommandLine line = parse_command_line(program, argc, argv);
    const std::string file = line.against.empty() ? line.config : line.against + "/config.yaml";
    if (file.empty()) {
      throw ConfigError("--config is required: name a YAML file");
    }
    return run(line, load_config({.file = file, .overrides = line.overrides}));
  } catch (const HelpRequested& help) {
    std::cout << help.text;
    return 0;
  } catch (const Error& error) {
    print_error(program.name, error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    print_error(program.name, error.what());
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace tandem
