#include "core/profiler.h"

#ifdef TANDEM_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#endif

namespace tandem {

#ifdef TANDEM_HAVE_NVTX
namespace {

/// NVTX keeps one domain object per name and process; creating it is idempotent.
nvtxDomainHandle_t domain() {
  static nvtxDomainHandle_t const handle = nvtxDomainCreateA("tandem");
  return handle;
}

using Text = std::array<char, 96>;

/// "name detail", cut to what fits.
Text text_of(const RangeName& range) {
  Text text{};
  char* end =
      std::copy_n(range.name.data(), std::min(range.name.size(), text.size() - 1), text.data());
  if (!range.detail.empty() && end < text.data() + text.size() - 2) {
    *end++ = ' ';
    const auto room = static_cast<std::size_t>(text.data() + text.size() - 1 - end);
    std::copy_n(range.detail.data(), std::min(range.detail.size(), room), end);
  }
  return text;
}

}  // namespace

Profiler::Profiler(bool nvtx, OpenRanges* open) : nvtx_(nvtx), open_(open) {}

void Profiler::begin(const RangeName& range) {
  if (open_ != nullptr) {
    open_->push(range.name, range.detail);
  }
  if (!nvtx_) {
    return;
  }
  const Text text = text_of(range);
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = text.data();
  if (range.payload >= 0) {
    event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    event.payload.llValue = range.payload;
  }
  nvtxDomainRangePushEx(domain(), &event);
}

void Profiler::end() {
  if (open_ != nullptr) {
    open_->pop();
  }
  if (nvtx_) {
    nvtxDomainRangePop(domain());
  }
}

void Profiler::name_thread(const std::string& name) const {
  if (nvtx_) {
    nvtxNameOsThreadA(static_cast<std::uint32_t>(syscall(SYS_gettid)), name.c_str());
  }
}
#else
Profiler::Profiler(bool, OpenRanges* open) : nvtx_(false), open_(open) {}
void Profiler::begin(const RangeName& range) {
  if (open_ != nullptr) {
    open_->push(range.name, range.detail);
  }
}
void Profiler::end() {
  if (open_ != nullptr) {
    open_->pop();
  }
}
void Profiler::name_thread(const std::string&) const {}
#endif

}  // namespace tandem
