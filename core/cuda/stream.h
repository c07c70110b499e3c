// CUDA streams and events behind core/device.h's interfaces. A stream carries what only one of its
// kernels uses at a time: pinned staging, scratch for sums, and the matmul workspace.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "core/cuda/kernels.h"
#include "core/cuda/launch_geometry.h"
#include "core/cuda/memory.h"
#include "core/device.h"

namespace tandem::cuda {

class CudaEvent final : public Event {
 public:
  CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;

  void synchronize() const override;
  cudaEvent_t native() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

enum class StreamPriority { kNormal, kHigh };

class CudaStream final : public Stream {
 public:
  /// On the current GPU. Does not wait for, nor is waited for by, CUDA's default stream. A stream
  /// of normal priority is to compute and has all its memory at once: where ranks are threads, an
  /// allocation in mid-step may wait for another rank's collective, and that for this rank.
  CudaStream(const std::string& name, StreamPriority priority);
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override;

  void record(Event& event) override;
  void wait(const Event& event) override;
  void synchronize() override;

  cudaStream_t native() const { return stream_; }
  Launch launch() const { return {stream_, scratch_, kScratchBytes}; }
  Staging& staging() { return *staging_; }
  /// kWorkspaceBytes for matmuls. There from the start where the stream is to compute; elsewhere
  /// from the first call on.
  void* workspace();

 private:
  std::string name_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Staging> staging_;
  std::byte* scratch_ = nullptr;
  void* workspace_ = nullptr;
};
/// What cuBLAS asks for on Hopper.
inline constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

}  // namespace tandem::cuda
