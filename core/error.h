// Errors are exceptions of a few types, each with the exit code its program leaves with. The text
// says what, where, the value, and what to write instead; it is printed once, by one rank.
#pragma once

#include <exception>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tandem {

/// What a program returns to the shell. 128+n (stopped by signal n) is not an error and not here.
enum class ExitCode : int {
  kDone = 0,
  kCheckFailed = 1,  ///< `verify` found a difference
  kUsage = 2,        ///< bad command line or config, a layout that cannot fit, an absent device
  kData = 3,         ///< unreadable or inconsistent data or checkpoint
  kPeer = 4,         ///< a peer was lost, stalled or disagreed
  kNonFinite = 5,    ///< too many non-finite steps in a row
  kInternal = 6,     ///< a fault of Tandem, or anything unforeseen
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

struct ConfigError : Error {
  explicit ConfigError(const std::string& what) : Error(ExitCode::kUsage, what) {}
};
struct DataError : Error {
  explicit DataError(const std::string& what) : Error(ExitCode::kData, what) {}
};
/// A peer died, stalled or disagreed: collectives of this rank's groups can no longer complete.
struct PeerLost : Error {
  explicit PeerLost(const std::string& what) : Error(ExitCode::kPeer, what) {}
};
struct NonFiniteError : Error {
  explicit NonFiniteError(const std::string& what) : Error(ExitCode::kNonFinite, what) {}
};
struct InternalError : Error {
  explicit InternalError(const std::string& what) : Error(ExitCode::kInternal, what) {}
};

/// What a program that ends with `error` returns.
inline ExitCode exit_code_of(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known != nullptr ? known->code() : ExitCode::kInternal;
}

/// Throws InternalError with the caller's place if a contract does not hold. `what` is a literal:
/// nothing is built or allocated while the contract holds.
inline void ensure(bool holds, const char* what,
                   std::source_location where = std::source_location::current()) {
  if (!holds) [[unlikely]] {
    throw InternalError(std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": " +
                        what);
  }
}

}  // namespace tandem
