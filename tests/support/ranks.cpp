#include "tests/support/ranks.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tandem::test {

std::unique_ptr<Device> one_thread_cpu() { return make_cpu_device(1); }

void run_ranks(int ranks, const RankBody& body, const DeviceFactory& make_device,
               const WorldOptions& options) {
  const auto thrown = run_local_world(ranks, options, [&](World& world) {
    const auto device = make_device();
    body(world, *device);
  });
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string text = text_of(thrown[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(text, "") << "thrown by rank " << rank << " of " << ranks;
  }
}

std::string text_of(const std::exception_ptr& error) {
  if (error == nullptr) {
    return "";
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  } catch (...) {
    return "an unknown exception";
  }
}

std::vector<int> everyone(const World& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace tandem::test
