#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "cuda_runtime.h"

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace tandem::testing {
namespace {

constexpr std::size_t kStack = std::size_t{64} << 10;
constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;

/// Passes when all of its threads have come.
struct Barrier {
  unsigned expected = 0, arrived = 0, generation = 0;
};

/// A stack and a place on it. swapcontext() alone would do, but saves the signal mask with two
/// calls of the system; it is kept for AddressSanitizer, which cannot follow a jump to another
/// stack.
struct Context {
  ucontext_t start{};
  jmp_buf place;
  bool started = false;
};
[[gnu::noinline]] void switch_to(Context& from, Context& to) {
#ifdef __SANITIZE_ADDRESS__
  swapcontext(&from.start, &to.start);
#else
  if (_setjmp(from.place) == 0) {
    from.started = true;
    if (to.started) {
      _longjmp(to.place, 1);
    }
    setcontext(&to.start);
  }
#endif
}

struct Fiber {
  Context context;
  std::unique_ptr<std::byte[]> stack;
  bool finished = true;
  Barrier* waits_for = nullptr;
  unsigned generation = 0;  ///< of the barrier, when it came there
};

/// One host thread's block at work. Fibers are made once and reused.
class Block {
 public:
  void run(unsigned threads, const std::function<void()>& kernel);
  void wait(Barrier& barrier);
  void wait_for_block() { wait(all_); }
  void wait_for_warp() { wait(warps_[threadIdx.x / kWarp]); }
  std::uint64_t& slot(unsigned thread) { return slots_[thread]; }

 private:
  static void enter();
  static void prepare(Fiber& fiber);
  /// Each thread up to its next barrier; false if all are finished or wait.
  bool run_warp(unsigned warp, bool forward);
  void serve();
  void arrive(Barrier& barrier) {
    if (++barrier.arrived == barrier.expected) {
      barrier.arrived = 0;
      ++barrier.generation;
    }
  }
  bool blocked(const Fiber& fiber) const {
    return fiber.waits_for != nullptr && fiber.waits_for->generation == fiber.generation;
  }

  const std::function<void()>* kernel_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* current_ = nullptr;
  unsigned left_ = 0;  ///< threads that are not finished
  Context scheduler_;
  Barrier all_;
  std::array<Barrier, kMostThreads / kWarp> warps_;
  std::array<std::uint64_t, kMostThreads> slots_{};
};

thread_local Block block;

void Block::enter() { block.serve(); }

void Block::serve() {
  while (true) {
    (*kernel_)();
    current_->finished = true;
    switch_to(current_->context, scheduler_);
  }
}

void Block::wait(Barrier& barrier) {
  Fiber& fiber = *current_;
  fiber.waits_for = &barrier;
  fiber.generation = barrier.generation;
  arrive(barrier);
  switch_to(fiber.context, scheduler_);
  fiber.waits_for = nullptr;
}

void Block::prepare(Fiber& fiber) {
  getcontext(&fiber.context.start);
  fiber.context.start.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.start.uc_stack.ss_size = kStack;
  fiber.context.start.uc_link = nullptr;
  makecontext(&fiber.context.start, &Block::enter, 0);
}

bool Block::run_warp(unsigned warp, bool forward) {
  bool moved = false;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const unsigned t = warp * kWarp + (forward ? lane : kWarp - 1 - lane);
    Fiber& fiber = *fibers_[t];
    if (fiber.finished || blocked(fiber)) {
      continue;
    }
    moved = true;
    current_ = &fiber;
    threadIdx = dim3(t, 0, 0);
    switch_to(scheduler_, fiber.context);
    left_ -= fiber.finished ? 1 : 0;
  }
  return moved;
}

void Block::run(unsigned threads, const std::function<void()>& kernel) {
  kernel_ = &kernel;
  while (fibers_.size() < threads) {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack = std::make_unique<std::byte[]>(kStack);
    prepare(*fiber);
    fibers_.push_back(std::move(fiber));
  }
  all_ = Barrier{threads, 0, 0};
  for (unsigned w = 0; w < threads / kWarp; ++w) {
    warps_[w] = Barrier{kWarp, 0, 0};
  }
  for (unsigned t = 0; t < threads; ++t) {
    fibers_[t]->finished = false;
    fibers_[t]->waits_for = nullptr;
  }
  left_ = threads;
  // A warp runs as far as it can before another does, first or last in turn: what one warp writes
  // too early for another, or reads too late, shows.
  const unsigned warps = threads / kWarp;
  for (bool forward = true; left_ > 0; forward = !forward) {
    bool moved = false;
    for (unsigned w = 0; w < warps; ++w) {
      while (run_warp(forward ? w : warps - 1 - w, forward)) {
        moved = true;
      }
    }
    if (!moved) {
      std::fputs("emulated block: threads wait for each other in different places\n", stderr);
      std::abort();
    }
  }
}

}  // namespace

cudaError_t run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& kernel) {
  const unsigned threads = config.blockDim.x;
  if (threads == 0 || threads > kMostThreads || threads % kWarp != 0 || config.gridDim.x == 0 ||
      config.gridDim.y == 0 || config.gridDim.y > 65535 || config.gridDim.x > 0x7fffffffu) {
    return cudaErrorInvalidValue;
  }
  blockDim = config.blockDim;
  gridDim = config.gridDim;
  for (unsigned y = 0; y < gridDim.y; ++y) {
    for (unsigned x = 0; x < gridDim.x; ++x) {
      blockIdx = dim3(x, y, 0);
      block.run(threads, kernel);
    }
  }
  return cudaSuccess;
}

void wait_for_block() { block.wait_for_block(); }
void wait_for_warp() { block.wait_for_warp(); }
std::uint64_t& exchange_slot(unsigned thread) { return block.slot(thread); }

}  // namespace tandem::testing
