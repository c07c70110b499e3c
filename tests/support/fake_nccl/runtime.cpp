#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "core/cuda/cuda_device.h"
#include "core/cuda/error.h"
#include "tests/support/deferred_device.h"
#include "tests/support/fake_nccl/fake_nccl.h"

struct CUevent_st {
  std::unique_ptr<tandem::Event> event = tandem::testing::make_deferred_event();
};

namespace {

std::atomic<bool> queries_held{false}, gpu_lost{false};

tandem::Stream& stream_of(cudaStream_t stream) {
  return *reinterpret_cast<tandem::Stream*>(stream);
}

}  // namespace

namespace tandem::testing {

void hold_queries(bool held) { queries_held = held; }
void lose_gpu(bool lost) { gpu_lost = lost; }

}  // namespace tandem::testing

namespace tandem::cuda {

cudaStream_t native(Stream& stream) { return reinterpret_cast<cudaStream_t>(&stream); }

void check_status(cudaError_t status, std::string_view call, std::string_view,
                  std::source_location) {
  if (status != cudaSuccess) {
    throw InternalError(std::string(call) + " failed");
  }
}
void report_status(cudaError_t, std::string_view, std::string_view) noexcept {}

}  // namespace tandem::cuda

cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return gpu_lost ? cudaErrorInvalidDevice : cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  stream_of(stream).record(*event->event);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  while (queries_held) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return tandem::testing::reached_at(*event->event) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto from = tandem::testing::reached_at(*start->event);
  const auto to = tandem::testing::reached_at(*end->event);
  if (!from || !to) {
    return cudaErrorNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*to - *from).count();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  stream_of(stream).wait(*event->event);
  return cudaSuccess;
}
