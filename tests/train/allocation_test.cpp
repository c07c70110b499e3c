// After its first step a run asks the heap for nothing large: every buffer is in the arena or was
// sized for the fullest micro-batch. The allocator's entry points are replaced by counting ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <numeric>
#include <string>

#include "tests/train/training.h"
#include "train/state.h"

namespace {

constexpr std::size_t kLarge = 64 * 1024;

std::atomic<bool> counting{false};
std::atomic<int> large_requests{0};
std::atomic<int> requests{0};
std::atomic<std::size_t> largest{0};

void count(std::size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) {
    requests.fetch_add(1, std::memory_order_relaxed);
    largest = std::max(largest.load(), bytes);
  }
  if (bytes >= kLarge && counting.load(std::memory_order_relaxed)) {
    large_requests.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace

// glibc's own names for what is replaced.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  count(bytes);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) {
  count(number * bytes);
  return __libc_calloc(number, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  count(bytes);
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace tandem::test {
namespace {

/// Buffers far above the limit, and micro-batches of different row counts.
Config large_config(PrecisionChoice precision) {
  Config config = small_config();
  config.precision = precision;
  config.model = {.vocab_size = 256, .context = 8, .hidden = 64, .ffn = 256, .layers = 2};
  config.data.seq_len = 128;
  config.train.global_batch = 16;
  return config;
}

/// Heap requests of `rounds` small sums on `ranks` threads, once all have warmed up.
int requests_of_sums(int ranks, int rounds) {
  requests = 0;
  run_ranks(ranks, [&](World& world, Device& device) {
    const auto stream = device.make_stream("test");
    std::vector<int> everyone(static_cast<std::size_t>(ranks));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto group = world.make_group("all", everyone, device, nullptr, nullptr);
    float x = 1.0f;
    const auto sum = [&] {
      group->all_reduce(Tensor(&x, DType::kF32, {1}), {.after = stream.get()}).wait(*stream);
    };
    for (int i = 0; i < 20; ++i) {
      sum();
    }
    group->barrier({}).wait_host();
    counting = true;
    for (int i = 0; i < rounds; ++i) {
      sum();
    }
    group->barrier({}).wait_host();
    counting = false;
  });
  return requests;
}

int requests_after_the_first_step(const Config& config) {
  large_requests = 0;
  std::atomic<int> through_the_first{0};
  train(config, {.steps = 12,
                 .after_step =
                     [&](const StepResult& step) {
                       // Ranks wait for each other behind this: the last one to come starts it.
                       if (step.step == 1 && ++through_the_first == config.world()) {
                         counting = true;
                       }
                       if (step.step == 12) {
                         counting = false;
                       }
                     },
                 .observe = false});
  EXPECT_FALSE(counting);
  return large_requests;
}

TEST(Allocations, TheCounterSeesALargeRequest) {
  counting = true;
  large_requests = 0;
  const std::vector<char> large(kLarge);
  counting = false;
  EXPECT_GE(large_requests, 1) << large.size();
}

TEST(Allocations, NothingLargeIsAllocatedAfterTheFirstStep) {
  for (const auto precision : {PrecisionChoice::kFp32, PrecisionChoice::kBf16}) {
    Config config = with_layout(large_config(precision), 2, 2, 2);
    EXPECT_EQ(requests_after_the_first_step(config), 0);
    config.parallel.sequence_parallel = true;
    config.model.dropout = 0.1;
    EXPECT_EQ(requests_after_the_first_step(config), 0);
    EXPECT_EQ(requests_after_the_first_step(with_layout(large_config(precision), 1, 1, 4)), 0);
  }
}

// Weights of any size come through the host without a copy of their size.
TEST(Allocations, InitialWeightsAreDrawnInPieces) {
  const auto device = one_thread_cpu();
  const auto stream = device->make_stream("test");
  ParameterStore store(Layout{1, 1, 0}), sizes(Layout{1, 1, 0});
  for (ParameterStore* each : {&store, &sizes}) {
    each->add({.name = "fc2.weight",
               .shape = {1024, 1024},
               .cut_dimension = 1,
               .init_std = 0.02,
               .block = "b"});
  }
  Arena measured;
  sizes.allocate(measured, Precision{}, {.moments = 2});
  Arena arena(*device, measured);
  store.allocate(arena, Precision{}, {.moments = 2});
  largest = 0;
  counting = true;
  store.initialize(*device, *stream, 1, 1);
  counting = false;
  EXPECT_GE(largest, kLarge);
  EXPECT_LE(largest, static_cast<std::size_t>(kHostPiece) * sizeof(float));
}

/// A field of /proc/self/status, in bytes.
double process_memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) {
      return std::stod(line.substr(field.size() + 1)) * 1024.0;
    }
  }
  return 0.0;
}

TEST(Memory, PeakIsWhatTheArenasTableSays) {
  Config config = small_config();
  config.model = {.vocab_size = 256, .context = 8, .hidden = 768, .ffn = 3072, .layers = 4};
  config.data.seq_len = 256;
  config.train.global_batch = 4;
  config = with_layout(config, 1, 1, 4);
  Config shallow = config;  // the libraries' own buffers, for matrices of these sizes
  shallow.model.layers = 1;
  train(shallow, {.observe = false});
  Arena measured;
  TrainState(config, {}, precision_of(config, DeviceKind::kCpu), max_rows(config), measured);
  const double before = process_memory("VmRSS");
  train(config, {.steps = 2, .observe = false});
  EXPECT_NEAR((process_memory("VmHWM") - before) / static_cast<double>(measured.total()), 1.0, 0.1);
}

// What ranks meet in is kept and used again: a sum asks for two handles and the lists of its
// tensors.
TEST(Allocation, ASumOnThreadsMeetsWhereOneDidBefore) {
  constexpr int kRounds = 500;
  EXPECT_LE(requests_of_sums(2, kRounds), 5 * kRounds + 100);
}

}  // namespace
}  // namespace tandem::test
