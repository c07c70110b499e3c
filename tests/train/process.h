// Starts a program as a user's shell would, in a scratch folder, and brings home everything that a
// user could see of it: exit code, both streams, time, memory, and processes that outlived it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tandem::test {

/// A folder under the temporary directory, removed with the object.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const;
  std::string read(const std::filesystem::path& file) const;
  bool has(const std::filesystem::path& file) const;

 private:
  std::filesystem::path path_;
};

struct Outcome {
  int code = -1;  ///< 128+n if signal n ended it, as a shell says
  std::string out, err;
  double seconds = 0.0;
  double peak_mib = 0.0;               ///< of the largest process
  std::vector<std::string> left_over;  ///< command lines of its processes that still live
  bool timed_out = false;
};

/// A process under way, for tests that send it signals.
struct Running {
  pid_t pid = 0;
  std::function<std::string()> out;     ///< stdout so far
  std::function<pid_t(int rank)> rank;  ///< the process that mpirun started as this rank; 0 if none
};

struct RunOptions {
  std::function<void(const Running&)> meanwhile;
  double limit_s = 60.0;  ///< then it is killed and `timed_out`
};

Outcome run(const std::vector<std::string>& command, const ScratchFolder& folder,
            const RunOptions& options = {});

/// `command` under scripts/mpirun.sh.
std::vector<std::string> under_mpirun(int ranks, std::vector<std::string> command);

std::size_t count(const std::string& text, const std::string& part);

}  // namespace tandem::test
