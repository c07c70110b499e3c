// The test-only device itself: it must be late where nothing waits, and in order where something
// does.
#include "tests/support/deferred_device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <vector>

namespace tandem::testing {
namespace {

Tensor of(std::vector<float>& values) {
  return Tensor::of<float>(values, {static_cast<std::int64_t>(values.size())});
}

TEST(DeferredDevice, WorkOfOneStreamIsInOrder) {
  const auto device = make_deferred_device(1, 1);
  const auto stream = device->make_stream("a");
  std::vector<std::vector<float>> links(100, std::vector<float>(8, 0.0f));
  links[0].assign(8, 3.0f);
  for (std::size_t i = 1; i < links.size(); ++i) {
    device->copy(*stream, of(links[i - 1]), of(links[i]));
  }
  stream->synchronize();
  EXPECT_EQ(links.back(), links.front());
}

TEST(DeferredDevice, CallsReturnBeforeTheWorkIsDone) {
  const auto device = make_deferred_device(1, 1);
  const auto stream = device->make_stream("a"), gate = device->make_stream("gate");
  const auto event = device->make_event();
  std::vector<float> big(1 << 20, 1.0f), other(1 << 20), from(4, 7.0f), to(4, 0.0f);
  for (int i = 0; i < 50; ++i) {
    device->copy(*gate, of(big), of(other));
  }
  gate->record(*event);
  stream->wait(*event);
  const auto start = std::chrono::steady_clock::now();
  device->copy(*stream, of(from), of(to));
  const auto call = std::chrono::steady_clock::now() - start;
  stream->synchronize();
  EXPECT_LT(call, std::chrono::steady_clock::now() - start);
  EXPECT_EQ(to, from);
}

TEST(DeferredDevice, AnEventOrdersStreamsOfTwoDevices) {
  const auto here = make_deferred_device(1, 1), there = make_deferred_device(1, 2);
  const auto producer = here->make_stream("a"), consumer = there->make_stream("b");
  const auto event = here->make_event();
  for (int round = 0; round < 50; ++round) {
    std::vector<float> source(4, static_cast<float>(round)), middle(4, -1.0f), result(4, -1.0f);
    here->copy(*producer, of(source), of(middle));
    producer->record(*event);
    consumer->wait(*event);
    there->copy(*consumer, of(middle), of(result));
    consumer->synchronize();
    EXPECT_EQ(result, source);
  }
}

TEST(DeferredDevice, AWaitIsForTheMarkOfItsTime) {
  const auto device = make_deferred_device(1, 1);
  const auto first = device->make_stream("a"), second = device->make_stream("b");
  const auto event = device->make_event(), later = device->make_event();
  first->record(*event);
  second->wait(*event);
  // The event is recorded again behind work that waits for `second`: no cycle, since the wait above
  // is for the earlier mark.
  second->record(*later);
  first->wait(*later);
  first->record(*event);
  second->synchronize();
  event->synchronize();
}

TEST(DeferredDevice, ANeverRecordedEventOrdersNothing) {
  const auto device = make_deferred_device(1, 1);
  const auto stream = device->make_stream("a");
  const auto event = device->make_event();
  stream->wait(*event);
  event->synchronize();
  stream->synchronize();
}

TEST(DeferredDevice, WhatAKernelThrowsSurfacesOnceAtSynchronize) {
  const auto device = make_deferred_device(1, 1);
  const auto stream = device->make_stream("a"), other = device->make_stream("b");
  const auto event = device->make_event();
  std::vector<float> four(4, 1.0f), five(5, 2.0f), kept(4, 3.0f);
  device->copy(*stream, of(four), of(five));  // shapes differ
  device->copy(*stream, of(four), of(kept));  // does not run any more
  stream->record(*event);
  other->wait(*event);
  EXPECT_THROW(event->synchronize(), InternalError);
  EXPECT_THROW(other->synchronize(), InternalError);
  EXPECT_THROW(stream->synchronize(), InternalError);
  EXPECT_EQ(kept[0], 3.0f);
  stream->synchronize();
}

/// A 64 x 64 matrix in the device's memory.
class OnDevice {
 public:
  explicit OnDevice(Device& device)
      : device_(&device), tensor(device.allocate(64 * 64 * sizeof(float)), DType::kF32, {64, 64}) {}
  ~OnDevice() { device_->deallocate(tensor.data); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  Device* device_;

 public:
  const Tensor tensor;
};

TEST(DeferredDevice, KernelsOfTwoStreamsAtOnceDoNotDisturbEachOther) {
  const auto device = make_deferred_device(1, 1);
  const auto one = device->make_stream("a"), two = device->make_stream("b");
  const auto uploaded = device->make_event();
  const OnDevice a(*device), b(*device), c(*device), d(*device);
  std::vector<float> up(64 * 64), ones(64 * 64, 1.0f), first(64 * 64), second(64 * 64);
  std::iota(up.begin(), up.end(), 0.0f);
  device->copy(*one, of(up), a.tensor.flat());
  device->copy(*one, of(ones), b.tensor.flat());
  one->record(*uploaded);
  two->wait(*uploaded);
  for (int i = 0; i < 20; ++i) {
    device->gemm(*one, {.a = a.tensor, .b = b.tensor, .c = c.tensor});
    device->gemm(*two, {.a = a.tensor, .b = b.tensor, .c = d.tensor});
  }
  device->copy(*one, c.tensor.flat(), of(first));
  device->copy(*two, d.tensor.flat(), of(second));
  one->synchronize();
  two->synchronize();
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[0], 63.0f * 64.0f / 2.0f);
}

TEST(DeferredDeviceDeathTest, TheHostThatTouchesItsMemoryCrashes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto device = make_deferred_device(1, 1);
  const OnDevice matrix(*device);
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(matrix.tensor.as<float>())), "");
}

TEST(DeferredDevice, AKernelRefusesHostMemory) {
  const auto device = make_deferred_device(1, 1);
  const auto stream = device->make_stream("a");
  std::vector<float> host(4, 1.0f);
  EXPECT_THROW(device->fill_zero(*stream, of(host)), InternalError);
  EXPECT_THROW(device->reduce_ranks(*stream, {.inputs = {of(host)}, .outputs = {of(host)}}),
               InternalError);
}

}  // namespace
}  // namespace tandem::testing
