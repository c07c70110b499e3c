#include "parallel/nccl/nccl_comm.h"

#include <chrono>
#include <thread>

namespace tandem::nccl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::microseconds(100);
/// A call alone takes some microseconds, less than a sleep; one that takes longer waits for peers.
constexpr auto kYield = std::chrono::milliseconds(1);
/// How long the end of a communicator may take; peers end theirs at the same time.
constexpr auto kFarewell = std::chrono::seconds(10);

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

ncclConfig_t configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;  // groups run at the same time: neither waits for the other's resources
  return config;
}

}  // namespace

std::string words(ncclResult_t result) {
  std::string text = ncclGetErrorString(result);
  const char* last = ncclGetLastError(nullptr);  // the communicator is not used, says nccl.h
  if (last != nullptr && *last != '\0') {
    text += std::string(" (") + last + ")";
  }
  return text;
}

NcclComm::NcclComm(const ncclUniqueId& id, int size, int rank, double timeout_s, const Watch& watch)
    : timeout_s_(timeout_s), watch_(&watch) {
  ncclConfig_t config = configuration();
  try {
    complete(ncclCommInitRankConfig(&comm_, size, id, rank, &config), "ncclCommInitRank");
  } catch (...) {
    abort();
    throw;
  }
}

NcclComm::NcclComm(NcclComm& parent, int color, int key)
    : timeout_s_(parent.timeout_s_), watch_(parent.watch_) {
  ncclConfig_t config = configuration();
  try {
    // The split is an operation of the parent; the child's handle is there when that is complete.
    parent.call("ncclCommSplit",
                [&](ncclComm_t from) { return ncclCommSplit(from, color, key, &comm_, &config); });
    if (color == NCCL_SPLIT_NOCOLOR) {
      return;
    }
    const auto start = Clock::now();
    while (comm_ == nullptr) {
      (*watch_)();
      if (seconds_since(start) > timeout_s_) {
        throw PeerLost("ncclCommSplit gives no communicator");
      }
      std::this_thread::sleep_for(kPoll);
    }
    complete(ncclInProgress, "ncclCommSplit");
  } catch (...) {
    abort();
    throw;
  }
}

NcclComm::~NcclComm() {
  if (comm_ == nullptr) {
    return;
  }
  ncclResult_t state = ncclCommFinalize(comm_);
  const auto start = Clock::now();
  while (state == ncclInProgress && Clock::now() - start < kFarewell) {
    std::this_thread::sleep_for(kPoll);
    if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) {
      state = ncclInternalError;
    }
  }
  if (state == ncclSuccess) {
    ncclCommDestroy(comm_);
  } else {
    abort();
  }
}

void NcclComm::complete(ncclResult_t result, const char* call) {
  if (result == ncclInProgress) {
    wait_while_in_progress(call);
  } else if (result != ncclSuccess) {
    fail(result, call);
  }
}

void NcclComm::check() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || comm_ == nullptr) {
    return;
  }
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) {
    fail(asked, "ncclCommGetAsyncError");
  }
  if (state != ncclSuccess && state != ncclInProgress) {
    throw PeerLost("NCCL says: " + words(state));  // of whatever kind: the job is over
  }
}

void NcclComm::wait_while_in_progress(const char* call) {
  const auto start = Clock::now();
  for (;;) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked =
        locked(call, [&](ncclComm_t comm) { return ncclCommGetAsyncError(comm, &state); });
    if (asked != ncclSuccess) {
      fail(asked, call);
    }
    if (state == ncclSuccess) {
      return;
    }
    if (state != ncclInProgress) {
      fail(state, call);
    }
    if (Clock::now() - start < kYield) {
      std::this_thread::yield();
      continue;
    }
    (*watch_)();
    if (seconds_since(start) > timeout_s_) {
      throw PeerLost(std::string(call) + ": not every rank came within " +
                     std::to_string(static_cast<int>(timeout_s_)) +
                     " s (parallel.timeout_s); is each of them alive?");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

void NcclComm::fail(ncclResult_t result, const char* call) {
  const std::string text = std::string(call) + ": NCCL says: " + words(result);
  if (result == ncclRemoteError || result == ncclSystemError) {
    throw PeerLost(text);
  }
  throw InternalError(text);
}

void NcclComm::abort(std::chrono::milliseconds patience) noexcept {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_, std::try_to_lock);
  while (!lock && Clock::now() - start < patience) {
    std::this_thread::sleep_for(kPoll);
    static_cast<void>(lock.try_lock());
  }
  if (lock) {
    abort_locked();
  }
}

void NcclComm::abort() noexcept {
  const std::lock_guard lock(mutex_);
  abort_locked();
}

void NcclComm::abort_locked() noexcept {
  if (comm_ != nullptr) {
    ncclCommAbort(comm_);
    comm_ = nullptr;
  }
}

}  // namespace tandem::nccl
