#include "core/profiler.h"

#ifdef TANDEM_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <cstring>
#endif

namespace tandem {

#ifdef TANDEM_HAVE_NVTX
namespace {

/// NVTX keeps one domain object per name and process; creating it is idempotent.
nvtxDomainHandle_t domain() {
  static nvtxDomainHandle_t const handle = nvtxDomainCreateA("tandem");
  return handle;
}

}  // namespace

Profiler::Profiler(bool nvtx) : nvtx_(nvtx) {}

void Profiler::begin(std::string_view name) {
  if (!nvtx_) {
    return;
  }
  std::array<char, 96> text{};
  std::memcpy(text.data(), name.data(), std::min(name.size(), text.size() - 1));
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = text.data();
  nvtxDomainRangePushEx(domain(), &event);
}

void Profiler::end() {
  if (nvtx_) {
    nvtxDomainRangePop(domain());
  }
}
#else
Profiler::Profiler(bool) : nvtx_(false) {}
void Profiler::begin(std::string_view) {}
void Profiler::end() {}
#endif

}  // namespace tandem
