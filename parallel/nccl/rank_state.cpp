#include "parallel/nccl/rank_state.h"

#include <chrono>
#include <exception>

#include "core/cuda/error.h"
#include "parallel/nccl/nccl_communicator.h"

namespace tandem::nccl {

namespace {

/// Far longer than a call of NCCL takes that is not held.
constexpr auto kCall = std::chrono::milliseconds(50);

}  // namespace

void RankState::add(NcclCommunicator& group) {
  const std::lock_guard lock(groups_mutex_);
  groups_.push_back(&group);
}

void RankState::remove(NcclCommunicator& group) {
  const std::lock_guard lock(groups_mutex_);
  groups_.remove(&group);
}

void RankState::check_open() const {
  if (failed_ && failure_code_ == ExitCode::kInternal) {
    throw InternalError(failure_);
  }
  if (failed_) {
    throw PeerLost(failure_);
  }
}

void RankState::check() {
  check_open();
  try {
    world_->check();
    const std::lock_guard lock(groups_mutex_);
    for (NcclCommunicator* group : groups_) {
      group->look();
    }
  } catch (const Error& error) {
    fail(error.what(), error.code());
    throw;
  }
}

std::string RankState::fail(const std::string& why, ExitCode code) {
  if (!failed_) {
    // Before anything is aborted, which may take its time: from here on the process ends.
    tell(why, code);
  }
  abort(why, code);
  return failure_;
}

std::string RankState::raise(const Alarm& alarm) {
  const std::string report = world_->raise(alarm);
  abort(alarm.text, alarm.code);
  return report;
}

void RankState::abort(const std::string& why, ExitCode code) noexcept {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failed_) {
      return;
    }
    try {
      failure_ = why;
    } catch (...) {  // no memory for the text: the communicators end all the same
    }
    failure_code_ = code;
    failed_ = true;
  }
  const std::lock_guard lock(groups_mutex_);
  // The end of one waits for the whole device, kernels of the others included: grouped, all are
  // told to stop before any is waited for. A call that is held behind a kernel has its group for
  // itself, and may go on once the other groups are aborted.
  ncclGroupStart();
  for (NcclCommunicator* group : groups_) {
    group->abort(kCall);
  }
  ncclGroupEnd();
  for (NcclCommunicator* group : groups_) {
    group->abort();
  }
}

bool RankState::look(int gpu) {
  if (failed_) {
    return false;
  }
  try {
    cuda::check_status(cudaSetDevice(gpu), "cudaSetDevice");
    std::string words;
    {
      const std::lock_guard lock(groups_mutex_);
      for (NcclCommunicator* group : groups_) {
        const std::string call = group->under_way();
        words += (words.empty() || call.empty() ? "" : ", ") + call;
      }
    }
    {
      const std::lock_guard lock(looked_at_mutex_);
      looked_at_ = words;
    }
    check();
    return true;
  } catch (const std::exception& error) {  // thrown again where the rank calls next
    fail(error.what(), exit_code_of(error));
    return false;
  }
}

bool RankState::held(double seconds) {
  const std::lock_guard lock(looked_at_mutex_);
  if (looked_at_.empty()) {  // it is no peer that CUDA waits for
    return false;
  }
  tell("the GPU has not answered for " + std::to_string(static_cast<int>(seconds)) +
           " s, not seen done at the last look: " + looked_at_ + "; a rank is stalled or gone",
       ExitCode::kPeer);
  return true;
}

void RankState::tell(const std::string& why, ExitCode code) {
  const std::int64_t step = world_->recorder().status().step;
  world_->abandon((step > 0 ? "step " + std::to_string(step) + ": " : "") + why, code);
}

}  // namespace tandem::nccl
