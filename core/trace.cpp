#include "core/trace.h"

#include <algorithm>

namespace tandem {

namespace {

constexpr std::size_t kDeepest = 32;

void write_text(TraceRecorder::Event& event, std::string_view name, std::string_view detail) {
  auto& text = event.text;
  const std::size_t room = text.size() - 1;
  std::size_t length = std::min(name.size(), room);
  std::copy_n(name.data(), length, text.data());
  if (!detail.empty() && length + 1 < room) {
    text[length++] = ' ';
    std::copy_n(detail.data(), std::min(detail.size(), room - length), text.data() + length);
  }
}

}  // namespace

TraceRecorder::TraceRecorder() {
  events_.reserve(kMostEvents);
  open_.reserve(kDeepest);
}

void TraceRecorder::keep(const Event& event) {
  if (events_.size() == kMostEvents) {
    full_ = true;
  } else {
    events_.push_back(event);
  }
}

void TraceRecorder::begin(std::string_view name, std::string_view detail, std::int64_t payload,
                          std::string_view unit) {
  Event& event = open_.emplace_back();
  write_text(event, name, detail);
  event.payload = payload;
  event.unit = unit;
  event.start = Clock::now();
}

void TraceRecorder::end() {
  if (!open_.empty()) {  // it was begun before recording was
    open_.back().end = Clock::now();
    keep(open_.back());
    open_.pop_back();
  }
}

void TraceRecorder::arrive(std::uint32_t flow) {
  if (!open_.empty()) {
    open_.back().flow = flow;
  }
}

std::uint32_t TraceRecorder::collective(std::string_view group, std::string_view label,
                                        std::string_view op, std::int64_t bytes,
                                        Clock::time_point start) {
  const auto found = std::find_if(tracks_.begin() + 1, tracks_.end(),
                                  [&](const std::string& track) { return track == group; });
  Event event;
  event.track = static_cast<std::uint8_t>(found - tracks_.begin());
  if (found == tracks_.end()) {
    tracks_.emplace_back(group);
  }
  write_text(event, label, op);
  event.payload = bytes;
  event.unit = "bytes";
  event.start = start;
  event.end = Clock::now();
  event.flow = ++flows_;
  keep(event);
  return event.flow;
}

}  // namespace tandem
