// A test-only device: the cpu device's kernels behind streams that really are asynchronous. Each
// stream is a queue served by a thread of its own with small random delays, and events order them
// as on a GPU, so that a missing wait, a buffer reused too early or a call on the wrong stream
// shows as wrong numbers (and as a data race under ThreadSanitizer) on a machine without a GPU. Its
// memory is guarded (guarded_memory.h): host code that touches it crashes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "core/device.h"

namespace tandem::testing {

/// `threads` OpenMP threads inside each kernel; `seed` of the delays. Calls return before the work
/// is done, arguments are captured by value, and what a kernel throws surfaces at the next
/// synchronize() of its stream, or of an event recorded behind it. Streams and events may outlive
/// neither their device nor each other's use; destroying a stream finishes its queue.
std::unique_ptr<Device> make_deferred_device(int threads, std::uint64_t seed);

/// An event that streams of any deferred device can record.
std::unique_ptr<Event> make_deferred_event();
/// Kernels and copies that streams of deferred devices have begun so far.
std::uint64_t begun_kernels();
/// Queues host code, as a kernel of a library would be: it runs on the stream's own thread.
void enqueue(Stream& stream, std::function<void()> work);
/// When the last mark in an event of such a device was reached; nothing before that, and for an
/// event that was never recorded the beginning of time.
std::optional<std::chrono::steady_clock::time_point> reached_at(const Event& event);

}  // namespace tandem::testing
