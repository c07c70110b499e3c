#include "tests/train/process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

namespace tandem::test {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::milliseconds(5);
/// How long processes of a program that ended may take to vanish.
constexpr double kVanishSeconds = 3.0;
/// In the environment of every process of a run, and so of all that it starts.
constexpr const char* kMark = "TANDEM_TEST_RUN";

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A file that has no name: what a child writes there is read here.
class Capture {
 public:
  explicit Capture(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {
    if (fd_ < 0) {
      throw std::runtime_error("memfd_create failed");
    }
  }
  ~Capture() { close(fd_); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  int fd() const { return fd_; }
  std::string text() const {
    std::string text(static_cast<std::size_t>(std::max<off_t>(0, lseek(fd_, 0, SEEK_END))), '\0');
    const ssize_t got = pread(fd_, text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
    return text;
  }

 private:
  int fd_;
};

/// Processes whose environment holds all of `words` ("NAME=value").
std::vector<pid_t> processes_with(const std::vector<std::string>& words) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (!std::all_of(pid.begin(), pid.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      continue;
    }
    const std::string environment = '\0' + text_of(entry.path() / "environ") + '\0';
    if (std::all_of(words.begin(), words.end(), [&](const std::string& word) {
          return environment.find('\0' + word + '\0') != std::string::npos;
        })) {
      found.push_back(std::stoi(pid));
    }
  }
  return found;
}

std::vector<std::string> command_lines(const std::vector<pid_t>& processes) {
  std::vector<std::string> lines;
  for (const pid_t pid : processes) {
    std::string command = text_of(fs::path("/proc") / std::to_string(pid) / "cmdline");
    std::replace(command.begin(), command.end(), '\0', ' ');
    lines.push_back(std::to_string(pid) + ": " + command);
  }
  return lines;
}

/// The roof is measured once for all runs of a test program, and not in the user's own cache.
const ScratchFolder& cache_folder() {
  static const ScratchFolder folder;
  return folder;
}

[[noreturn]] void become(const std::vector<std::string>& command, const ScratchFolder& folder,
                         const std::string& mark, int out, int err) {
  std::vector<char*> arguments;
  for (const std::string& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  setpgid(0, 0);
  setenv(kMark, mark.c_str(), 1);
  setenv("XDG_CACHE_HOME", cache_folder().path().c_str(), 1);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (chdir(folder.path().c_str()) == 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
      dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0) {
    execv(arguments[0], arguments.data());
  }
  _exit(127);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::string name = fs::temp_directory_path() / "tandem_test_XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("no folder can be made in " + fs::temp_directory_path().string());
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void ScratchFolder::write(const std::string& file, const std::string& text) const {
  std::ofstream(path_ / file, std::ios::binary) << text;
}
std::string ScratchFolder::read(const fs::path& file) const { return text_of(path_ / file); }
bool ScratchFolder::has(const fs::path& file) const { return fs::exists(path_ / file); }

Outcome run(const std::vector<std::string>& command, const ScratchFolder& folder,
            const RunOptions& options) {
  const Capture out("stdout");
  const Capture err("stderr");
  const std::string mark = folder.path().filename().string();
  const std::string marked = std::string(kMark) + "=" + mark;
  cache_folder();
  const auto start = Clock::now();
  const pid_t pid = fork();
  if (pid < 0) {
    throw std::runtime_error("fork failed");
  }
  if (pid == 0) {
    become(command, folder, mark, out.fd(), err.fd());
  }
  Outcome outcome;
  if (options.meanwhile) {
    options.meanwhile({.pid = pid,
                       .out = [&] { return out.text(); },
                       .rank =
                           [&](int rank) {
                             const auto found = processes_with(
                                 {marked, "OMPI_COMM_WORLD_RANK=" + std::to_string(rank)});
                             return found.empty() ? 0 : found.front();
                           }});
  }
  int status = 0;
  rusage usage{};
  while (wait4(pid, &status, WNOHANG, &usage) == 0) {
    if (!outcome.timed_out && seconds_since(start) > options.limit_s) {
      outcome.timed_out = true;
      kill(-pid, SIGKILL);
    }
    std::this_thread::sleep_for(kPoll);
  }
  outcome.seconds = seconds_since(start);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.peak_mib = static_cast<double>(usage.ru_maxrss) / 1024.0;
  const auto ended = Clock::now();
  do {
    outcome.left_over = command_lines(processes_with({marked}));
    std::this_thread::sleep_for(kPoll);
  } while (!outcome.left_over.empty() && seconds_since(ended) < kVanishSeconds);
  outcome.out = out.text();
  outcome.err = err.text();
  return outcome;
}

std::vector<std::string> under_mpirun(int ranks, std::vector<std::string> command) {
  command.insert(command.begin(), {TANDEM_SOURCE_DIR "/scripts/mpirun.sh", std::to_string(ranks)});
  return command;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

}  // namespace tandem::test
