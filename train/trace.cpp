#include "train/trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <unordered_set>
#include <vector>

namespace tandem {

namespace {

using TraceEvent = TraceRecorder::Event;

std::int64_t nanoseconds(TraceRecorder::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::string json_text(std::string_view text) { return nlohmann::json(text).dump(); }

/// The events of one rank as lines of JSON, each ending in a comma.
std::string lines_of(const TraceRecorder& recorder, const Layout& layout, std::int64_t shift_ns) {
  std::string out;
  const auto named = [&](const char* what, int track, const std::string& name) {
    out += fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}},)"
                       "\n",
                       what, layout.rank, track, json_text(name));
  };
  named("process_name", 0,
        fmt::format("rank {} (tp {}, dp {})", layout.rank, layout.tp_rank(), layout.dp_rank()));
  for (std::size_t t = 0; t < recorder.tracks().size(); ++t) {
    named("thread_name", static_cast<int>(t), recorder.tracks()[t]);
  }
  std::unordered_set<std::uint32_t> started, ended;
  for (const TraceEvent& event : recorder.events()) {
    if (event.flow != 0) {
      (event.track > 0 ? started : ended).insert(event.flow);
    }
  }
  for (const TraceEvent& event : recorder.events()) {
    const std::string_view text(event.text.data());
    const double start = static_cast<double>(nanoseconds(event.start) + shift_ns) * 1e-3;
    const double end = static_cast<double>(nanoseconds(event.end) + shift_ns) * 1e-3;
    out += fmt::format(R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f})",
                       json_text(text), layout.rank, event.track, start, end - start);
    if (event.payload >= 0) {
      out += fmt::format(R"(,"args":{{"{}":{}}})", event.unit, event.payload);
    }
    out += "},\n";
    if (event.flow != 0 && started.contains(event.flow) && ended.contains(event.flow)) {
      // An arrow is drawn between the slices that enclose its ends.
      const bool from = event.track > 0;
      out += fmt::format(
          R"({{"ph":"{}","name":"collective","cat":"collective","id":"{}.{}","pid":{},"tid":{},)"
          R"("ts":{:.3f}{}}},)"
          "\n",
          from ? "s" : "f", layout.rank, event.flow, layout.rank, event.track, from ? start : end,
          from ? "" : R"(,"bp":"e")");
    }
  }
  return out;
}

}  // namespace

void write_trace(const RankContext& rank, const HostMap& hosts, const TraceRecorder& recorder,
                 const std::filesystem::path& file) {
  Communicator& control = *rank.control;
  const auto world = static_cast<std::size_t>(rank.layout.world());
  control.barrier({.label = "clocks of the trace"}).wait_host();
  const std::int64_t now = nanoseconds(TraceRecorder::Clock::now());
  std::int64_t first = now;
  for (const TraceEvent& event : recorder.events()) {
    first = std::min(first, nanoseconds(event.start));
  }
  // Ranks of a host share a clock.
  std::array<std::int64_t, 1> own = {now};
  std::vector<std::int64_t> clocks(world);
  control
      .all_gather(Tensor::of<std::int64_t>(own, {1}),
                  Tensor::of<std::int64_t>(clocks, {std::ssize(clocks)}),
                  {.label = "clocks of the trace"})
      .wait_host();
  const auto self = static_cast<std::size_t>(rank.layout.rank);
  const std::int64_t shift = hosts.names[self] == hosts.names[0] ? 0 : clocks[0] - now;
  first += shift;
  control
      .all_reduce(Tensor(&first, DType::kI64, {1}),
                  {.op = ReduceOp::kMin, .label = "start of the trace"})
      .wait_host();

  std::string lines = lines_of(recorder, rank.layout, shift - first);
  std::array<std::int64_t, 1> size = {std::ssize(lines)};
  std::vector<std::int64_t> sizes(world);
  control
      .all_gather(Tensor::of<std::int64_t>(size, {1}),
                  Tensor::of<std::int64_t>(sizes, {std::ssize(sizes)}), {.label = "trace"})
      .wait_host();
  // Everything goes to rank 0.
  std::vector<std::int64_t> sent(world, 0), received(world, 0);
  sent[0] = size[0];
  std::string all;
  if (self == 0) {
    received = sizes;
    all.resize(
        static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})));
  }
  control
      .all_to_all(Tensor(lines.data(), DType::kU8, {size[0]}), sent,
                  Tensor(all.data(), DType::kU8, {std::ssize(all)}), received, {.label = "trace"})
      .wait_host();
  if (self != 0) {
    return;
  }
  errno = 0;
  std::ofstream out(file);
  out << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
      << std::string_view(all).substr(0, all.size() - 2) << "\n]}\n";
  if (!out.flush()) {
    rank.log->warn(fmt::format("{}: cannot be written ({})", file.string(), std::strerror(errno)));
  }
}

}  // namespace tandem
