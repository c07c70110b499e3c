// A rank's voice. Rank 0 talks; other ranks only warn, with their rank in front. Everything goes to
// stderr: stdout is for tables and progress.
#pragma once

#include <memory>
#include <string>

namespace spdlog {
class logger;
}

namespace tandem {

/// One per rank, in its RankContext. Cheap to copy.
class Logger {
 public:
  explicit Logger(int rank);

  void info(const std::string& text) const;
  void warn(const std::string& text) const;

 private:
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace tandem
