// How ranks find out together that one of them has failed, so that one reports it and all leave.
#pragma once

#include <functional>

#include "core/error.h"
#include "parallel/communicator.h"

namespace tandem {

/// An error of this rank that all ranks know of: it prints it, and nobody waits for it.
struct Agreed : Error {
  using Error::Error;
};
/// An agreed error that another rank prints.
struct Silenced : Error {
  explicit Silenced(ExitCode code) : Error(code, "another rank reports the error") {}
};
/// Runs `check` on every rank of `control` and agrees on the outcome: returns if none threw, else
/// throws on every rank: Agreed with the error on the rank that is to print it (the worst exit
/// code, then the lowest rank), Silenced on all others. `check` must not communicate.
void agree(Communicator& control, const std::function<void()>& check);

}  // namespace tandem
