#include "core/log.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>

namespace tandem {

Logger::Logger(int rank) {
  // One sink per rank: ranks may be threads, and a registered name could not be used twice.
  auto sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>();
  logger_ = std::make_shared<spdlog::logger>("tandem", std::move(sink));
  logger_->set_level(rank == 0 ? spdlog::level::info : spdlog::level::warn);
  logger_->set_pattern(rank == 0 ? "%^%l%$: %v" : "%^%l%$: rank " + std::to_string(rank) + ": %v");
  logger_->flush_on(spdlog::level::info);
}

void Logger::info(const std::string& text) const { logger_->info(text); }
void Logger::warn(const std::string& text) const { logger_->warn(text); }

}  // namespace tandem
