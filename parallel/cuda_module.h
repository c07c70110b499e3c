// The seam to libtandem_cuda.so, which holds everything that links CUDA and NCCL. Programs load it
// only where a driver is present and a GPU is wanted: linking those libraries would cost every CPU
// rank a third of a second and 200 MB, and the same programs must run where CUDA is not installed.
// The module exports one C function, which returns a table of factories with its version.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "parallel/world.h"

namespace tandem {

/// Goes up whenever the table, or an interface that crosses it, changes.
inline constexpr int kCudaModuleVersion = 2;

struct CudaDeviceChoice {
  int ordinal = 0;    ///< among the GPUs that the driver shows this process
  bool tf32 = false;  ///< fp32 matmuls round their inputs to 10 bits of mantissa
};

struct CudaModule {
  int version = kCudaModuleVersion;  ///< first: read before anything else is trusted
  /// Called on the thread that will use the device.
  std::unique_ptr<Device> (*make_device)(const CudaDeviceChoice& choice) = nullptr;
  /// nullptr in a build without NCCL. A world whose groups of `device`'s kind talk through NCCL,
  /// over `world`, which passes the id around, makes all other groups, and outlives the result.
  /// Collective over `control`, which holds all ranks of `world`.
  std::unique_ptr<World> (*make_nccl_world)(World& world, Communicator& control, Device& device,
                                            const WorldOptions& options) = nullptr;
  /// The range that `nsys profile --capture-range=cudaProfilerApi` records.
  void (*profiler_start)() = nullptr;
  void (*profiler_stop)() = nullptr;
};

inline constexpr const char* kCudaModuleFile = "libtandem_cuda.so";
inline constexpr const char* kCudaModuleFunction = "tandem_cuda_module";
using CudaModuleFunction = const CudaModule*();

/// Files that find_cuda() looks for.
struct CudaFiles {
  std::string driver = "libcuda.so.1";  ///< a bare name is sought as the system's loader does
  std::string module;                   ///< default: kCudaModuleFile beside libtandem.so
};

/// What a process can use.
struct CudaFound {
  /// GPUs that the driver shows this process, by identity: no two GPUs anywhere share one.
  std::vector<std::string> gpus;
  const CudaModule* module = nullptr;  ///< nullptr: no GPU can be used
  std::string missing;                 ///< why, in words, where there is no module
};

/// Asks the driver for its GPUs and loads the module if there is one; nothing is loaded twice and
/// nothing is unloaded. Throws ConfigError for a module of another version.
CudaFound find_cuda(const CudaFiles& files = {});

}  // namespace tandem
