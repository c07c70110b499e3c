#include "train/launch.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <numeric>
#include <sstream>

#include "train/agree.h"
#include "train/stop_signal.h"

namespace tandem {

namespace {

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
    } catch (const std::exception& error) {
      // The world reports it, unless it has reported something else.
      world_.abandon(error.what(), exit_code_of(error));
      return static_cast<int>(exit_code_of(error));
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
  } catch (const std::exception& error) {
    print_error(name, error.what());
    return static_cast<int>(exit_code_of(error));
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
    if (!line.against.empty() && !std::filesystem::exists(file)) {
      throw ConfigError("--against " + line.against +
                        ": is not a run directory: it has no config.yaml");
    }
    const int code = run(line, load_config({.file = file, .overrides = line.overrides}));
    if (!std::cout.flush()) {
      throw ConfigError("stdout cannot be written: the disk may be full. Name a file with --json");
    }
    return code;
  } catch (const HelpRequested& help) {
    std::cout << help.text;
    return 0;
  } catch (const std::exception& error) {
    print_error(program.name, error.what());
    return static_cast<int>(exit_code_of(error));
  }
}

}  // namespace tandem
