#include "core/cuda/stream.h"

#include <nvtx3/nvToolsExtCudaRt.h>

#include "core/cuda/error.h"

namespace tandem::cuda {

CudaEvent::CudaEvent() {
  check_status(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
}

CudaEvent::~CudaEvent() { report_status(cudaEventDestroy(event_), "cudaEventDestroy"); }

void CudaEvent::synchronize() const {
  check_status(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

CudaStream::CudaStream(const std::string& name, StreamPriority priority) : name_(name) {
  int least = 0, greatest = 0;
  check_status(cudaDeviceGetStreamPriorityRange(&least, &greatest),
               "cudaDeviceGetStreamPriorityRange");
  check_status(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                            priority == StreamPriority::kHigh ? greatest : least),
               "cudaStreamCreate", name_);
  nvtxNameCudaStreamA(stream_, name_.c_str());
  scratch_ = static_cast<std::byte*>(allocate_zeroed(kScratchBytes));
  staging_ = std::make_unique<Staging>(stream_);
  if (priority == StreamPriority::kNormal) {
    staging_->allocate();
    workspace();
  }
}

CudaStream::~CudaStream() {
  // What is queued still uses the memory below.
  report_status(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", name_);
  staging_.reset();
  report_status(cudaFree(scratch_), "cudaFree (scratch)");
  report_status(cudaFree(workspace_), "cudaFree (workspace)");
  report_status(cudaStreamDestroy(stream_), "cudaStreamDestroy", name_);
}

void CudaStream::record(Event& event) {
  check_status(cudaEventRecord(dynamic_cast<CudaEvent&>(event).native(), stream_),
               "cudaEventRecord", name_);
}

void CudaStream::wait(const Event& event) {
  check_status(cudaStreamWaitEvent(stream_, dynamic_cast<const CudaEvent&>(event).native(), 0),
               "cudaStreamWaitEvent", name_);
}

void CudaStream::synchronize() {
  check_status(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", name_);
}

void* CudaStream::workspace() {
  if (workspace_ == nullptr) {
    workspace_ = allocate_zeroed(kWorkspaceBytes);
  }
  return workspace_;
}

}  // namespace tandem::cuda
