#include "parallel/nccl/marks.h"

#include "core/cuda/error.h"

namespace tandem::nccl {

using cuda::check_status;
using cuda::report_status;

EventPool::~EventPool() {
  for (const cudaEvent_t event : all_) {
    report_status(cudaEventDestroy(event), "cudaEventDestroy");
  }
}

cudaEvent_t EventPool::take() {
  if (free_.empty()) {
    cudaEvent_t event = nullptr;
    check_status(cudaEventCreate(&event), "cudaEventCreate");  // with timing
    all_.push_back(event);
    return event;
  }
  const cudaEvent_t event = free_.back();
  free_.pop_back();
  return event;
}

StreamMark::StreamMark(const std::shared_ptr<EventPool>& pool, cudaStream_t stream)
    : event_(pool->take(), [pool](cudaEvent_t event) { pool->give_back(event); }) {
  check_status(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
}

bool StreamMark::reached() const {
  const cudaError_t state = cudaEventQuery(event_.get());
  if (state == cudaErrorNotReady) {
    return false;
  }
  check_status(state, "cudaEventQuery");
  return true;
}

double StreamMark::seconds_since(const StreamMark& earlier) const {
  float milliseconds = 0.0f;
  check_status(cudaEventElapsedTime(&milliseconds, earlier.event_.get(), event_.get()),
               "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace tandem::nccl
