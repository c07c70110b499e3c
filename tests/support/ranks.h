// Runs a test's body on several ranks: threads of this process, each with a device of its own. The
// same bodies run under mpirun (tests/parallel/mpi_test.cpp).
#pragma once

#include <functional>
#include <memory>

#include "core/device.h"
#include "parallel/world.h"

namespace tandem::test {

/// What a test of several ranks does on each; expectations may be stated from any rank.
using RankBody = std::function<void(World& world, Device& device)>;
using DeviceFactory = std::function<std::unique_ptr<Device>()>;

std::unique_ptr<Device> one_thread_cpu();

/// Runs `body` on `ranks` threads and fails the test if any rank throws.
void run_ranks(int ranks, const RankBody& body, const DeviceFactory& make_device = one_thread_cpu,
               const WorldOptions& options = {.timeout_s = 30});

/// The text of what was thrown; "" for nothing.
std::string text_of(const std::exception_ptr& error);

/// All ranks of the world, in order.
std::vector<int> everyone(const World& world);

}  // namespace tandem::test
