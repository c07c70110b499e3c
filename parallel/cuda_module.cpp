#include "parallel/cuda_module.h"

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "core/error.h"

namespace tandem {

namespace {

/// Something inside libtandem.so, to find the file by.
const char kHere = 0;

/// The few calls of the driver that need no CUDA context and cost nothing, as <cuda.h> declares
/// them.
struct Driver {
  int (*init)(unsigned flags) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device)(int* device, int ordinal) = nullptr;
  int (*uuid)(unsigned char* bytes16, int device) = nullptr;
  int (*error_text)(int code, const char** text) = nullptr;
};

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

std::string last_loader_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown reason" : text;
}

std::string words(const Driver& driver, int code) {
  const char* text = nullptr;
  if (driver.error_text != nullptr) {
    driver.error_text(code, &text);
  }
  return std::string(text == nullptr ? "unknown error" : text) + " (driver error " +
         std::to_string(code) + ")";
}

std::string visible_setting() {
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  return text == nullptr ? "" : std::string("; CUDA_VISIBLE_DEVICES is \"") + text + "\"";
}

/// Fills `found.gpus`, or `found.missing`.
void ask_driver(const std::string& file, CudaFound& found) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    found.missing = "there is no NVIDIA driver on this host (" + last_loader_error() + ")";
    return;
  }
  Driver driver;
  find(library, "cuInit", driver.init);
  find(library, "cuDeviceGetCount", driver.device_count);
  find(library, "cuDeviceGet", driver.device);
  find(library, "cuDeviceGetUuid_v2", driver.uuid);
  find(library, "cuGetErrorString", driver.error_text);
  if (driver.init == nullptr || driver.device_count == nullptr || driver.device == nullptr ||
      driver.uuid == nullptr) {
    found.missing = "the NVIDIA driver (" + file + ") is too old to be used";
    return;
  }
  int gpus = 0;
  int code = driver.init(0);
  code = code == 0 ? driver.device_count(&gpus) : code;
  for (int ordinal = 0; code == 0 && ordinal < gpus; ++ordinal) {
    int device = 0;
    std::array<unsigned char, 16> uuid{};
    code = driver.device(&device, ordinal);
    code = code == 0 ? driver.uuid(uuid.data(), device) : code;
    std::string identity;
    for (const unsigned char byte : uuid) {
      std::array<char, 3> hex{};
      std::snprintf(hex.data(), hex.size(), "%02x", byte);
      identity += hex.data();
    }
    found.gpus.push_back(identity);
  }
  if (code != 0) {
    found.gpus.clear();
    found.missing = "the NVIDIA driver gives no GPU: " + words(driver, code) + visible_setting();
  } else if (gpus == 0) {
    found.missing = "the NVIDIA driver shows this process no GPU" + visible_setting();
  }
}

void load_module(const std::string& file, CudaFound& found) {
  if (!std::filesystem::exists(file)) {
    found.missing = "this build has no CUDA module: " + file +
                    " is not there. Build with -DTANDEM_CUDA=ON where a CUDA toolkit is installed";
    return;
  }
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    found.missing = "the CUDA module cannot be loaded: " + last_loader_error();
    return;
  }
  CudaModuleFunction* function = nullptr;
  find(library, kCudaModuleFunction, function);
  if (function == nullptr) {
    throw ConfigError(file + ": is no CUDA module of Tandem (" + last_loader_error() +
                      "): build it again together with libtandem.so");
  }
  const CudaModule* const module = function();
  if (module->version != kCudaModuleVersion) {
    throw ConfigError(file + ": is a CUDA module of interface version " +
                      std::to_string(module->version) + ", and this program needs version " +
                      std::to_string(kCudaModuleVersion) +
                      ": build it again together with libtandem.so");
  }
  found.module = module;
}

}  // namespace

CudaFound find_cuda(const CudaFiles& files) {
  CudaFound found;
  ask_driver(files.driver, found);
  if (found.gpus.empty()) {
    return found;
  }
  std::string module = files.module;
  if (module.empty()) {
    Dl_info info{};
    ensure(dladdr(&kHere, &info) != 0, "libtandem.so cannot find itself");
    module = (std::filesystem::path(info.dli_fname).parent_path() / kCudaModuleFile).string();
  }
  load_module(module, found);
  return found;
}

}  // namespace tandem
