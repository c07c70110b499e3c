#include "core/profiler.h"

#ifdef TANDEM_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

Profiler::Profiler(bool nvtx, OpenRanges* watched) : nvtx_(nvtx), watched_(watched) {}

void Profiler::begin_nvtx(const RangeName& range) {
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

void Profiler::end_nvtx() {
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
Profiler::Profiler(bool, OpenRanges* watched) : nvtx_(false), watched_(watched) {}
void Profiler::begin_nvtx(const RangeName&) {}
void Profiler::end_nvtx() {}
void Profiler::name_thread(const std::string&) const {}
#endif

void Profiler::begin(const RangeName& range) {
  if (watched_ != nullptr) {
    watched_->push(range.name, range.detail);
  }
  begin_nvtx(range);
  if (trace_ != nullptr) {
    trace_->begin(range.name, range.detail, range.payload, range.unit);
  }
  if (depth_ < kTimedDepth && !range.detail.empty()) {
    open_[depth_].phase = Phase::kNone;
  } else if (depth_ < kTimedDepth) {
    const std::size_t parent = depth_ == 0 ? Phase::kNone : open_[depth_ - 1].phase;
    std::size_t phase = 0;
    while (phase < phases_.size() &&
           (phases_[phase].parent != parent || phases_[phase].name != range.name)) {
      ++phase;
    }
    if (phase == phases_.size()) {
      phases_.push_back({.name = std::string(range.name), .parent = parent});
    }
    open_[depth_] = {phase, std::chrono::steady_clock::now()};
  }
  ++depth_;
}

void Profiler::end() {
  if (watched_ != nullptr) {
    watched_->pop();
  }
  --depth_;
  if (depth_ < kTimedDepth && open_[depth_].phase != Phase::kNone) {
    const Open& open = open_[depth_];
    ++phases_[open.phase].calls;
    phases_[open.phase].seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - open.start).count();
  }
  if (trace_ != nullptr) {
    trace_->end();
  }
  end_nvtx();
}

std::string Profiler::path(const Phase& phase) const {
  return phase.parent == Phase::kNone ? phase.name : path(phases_[phase.parent]) + "/" + phase.name;
}

}  // namespace tandem
