// How rows reach a device that has memory of its own: the wide ones through pinned memory, so that
// the host does not wait for the device to come to the copy.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "tests/support/deferred_device.h"
#include "tests/train/training.h"
#include "tools/verify/forwarding_device.h"

namespace tandem::test {
namespace {

constexpr std::int64_t kHidden = 8, kRows = 4;

/// A CPU that has pinned memory and would not let the host touch the rest.
class Uploads final : public verify::ForwardingDevice {
 public:
  Uploads(std::unique_ptr<Device> cpu, std::multiset<const void*>& from)
      : ForwardingDevice(*cpu), cpu_(std::move(cpu)), from_(from) {}

  bool host_memory() const override { return false; }
  void* allocate_staging(std::size_t bytes) override {
    void* memory = ForwardingDevice::allocate_staging(bytes);
    pinned_[memory] = bytes;
    return memory;
  }
  void deallocate_staging(void* memory) noexcept override {
    pinned_.erase(memory);
    ForwardingDevice::deallocate_staging(memory);
  }
  void copy(Stream& stream, const Tensor& from, const Tensor& to) override {
    if (pinned_.contains(from.data)) {
      EXPECT_EQ(from.shape, (Shape{kRows, kHidden}));
      from_.insert(from.data);
    }
    ForwardingDevice::copy(stream, from, to);
  }

 private:
  std::unique_ptr<Device> cpu_;
  std::multiset<const void*>& from_;  ///< of copies from pinned memory
  std::map<void*, std::size_t> pinned_;
};

/// Trains two steps of `accumulation` micro-batches, each of rows of its own.
Training train_on(const DeviceFactory& make_device, int accumulation) {
  Config config = small_config();
  config.model = {.kind = ModelKind::kFfn,
                  .vocab_size = 0,
                  .context = 0,
                  .hidden = kHidden,
                  .ffn = 16,
                  .layers = 1};
  config.train.global_batch = accumulation;
  config = with_layout(config, 1, 1, accumulation);
  std::vector<FfnRows> batches;
  for (int m = 0; m < accumulation; ++m) {
    FfnRows& rows = batches.emplace_back(FfnRows{.tokens = kRows});
    for (int i = 0; i < kRows * kHidden; ++i) {
      rows.input.push_back(0.25f * static_cast<float>((m + i) % 7));
      rows.expected.push_back(0.5f * static_cast<float>((m + i) % 5));
    }
  }
  return train(
      config,
      {.steps = 2, .make_device = make_device, .make_source = [&](const Config&, const Layout&) {
         return scripted_source(kHidden, batches);
       }});
}

/// Where the device's copies of wide rows came from in two such steps.
std::multiset<const void*> copies_from_pinned(int accumulation) {
  std::multiset<const void*> from;
  train_on([&] { return std::make_unique<Uploads>(make_cpu_device(1), from); }, accumulation);
  return from;
}

TEST(Upload, RowsOfAStepGoThroughPinnedMemoryOfTheirOwn) {
  const auto from = copies_from_pinned(2);
  EXPECT_EQ(from.size(), 8u) << "input and expected output of two micro-batches, twice";
  EXPECT_EQ(std::set(from.begin(), from.end()).size(), 4u) << "none waits for another";
}

TEST(Upload, PinnedMemoryDoesNotGrowWithTheMicroBatchesOfAStep) {
  const auto from = copies_from_pinned(8);
  EXPECT_EQ(from.size(), 32u);
  EXPECT_EQ(std::set(from.begin(), from.end()).size(), 6u) << "those of three micro-batches";
}

TEST(Upload, NoRowsAreOverwrittenBeforeTheDeviceHasThem) {
  const auto deferred = [] { return testing::make_deferred_device(1, 3); };
  const auto host = [] { return make_cpu_device(1); };
  EXPECT_DOUBLE_EQ(train_on(deferred, 16).steps.back().loss, train_on(host, 16).steps.back().loss);
}

}  // namespace
}  // namespace tandem::test
