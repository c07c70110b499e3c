// Places in CUDA streams: whether the device has come to one, and how long it took between two.
// Events are made once and used again, since making one costs more than recording it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

namespace tandem::nccl {

class EventPool {
 public:
  EventPool() = default;
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();

  cudaEvent_t take();
  void give_back(cudaEvent_t event) { free_.push_back(event); }

 private:
  std::vector<cudaEvent_t> free_, all_;
};

/// Shared by who waits for it; its event goes back to the pool after the last.
class StreamMark {
 public:
  /// Marks the present end of `stream`.
  StreamMark(const std::shared_ptr<EventPool>& pool, cudaStream_t stream);

  cudaEvent_t event() const { return event_.get(); }
  /// Throws InternalError for what went wrong on the device before it.
  bool reached() const;
  /// Seconds the device took from `earlier` to here; both are reached.
  double seconds_since(const StreamMark& earlier) const;

 private:
  std::shared_ptr<CUevent_st> event_;
};

}  // namespace tandem::nccl
