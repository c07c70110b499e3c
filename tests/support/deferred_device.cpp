#include "tests/support/deferred_device.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

namespace tandem::testing {
namespace {

/// One recorded point of one stream. An event points at its latest; who waits keeps the one that
/// was latest at the time of the call.
class Mark {
 public:
  void reach(std::exception_ptr error) {
    const std::scoped_lock lock(mutex_);
    reached_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }
  /// Blocks until reached; throws what went wrong before it.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  std::exception_ptr error_;
};

class DeferredEvent final : public Event {
 public:
  void synchronize() const override {
    if (const auto mark = latest()) {
      mark->wait();
    }
  }
  std::shared_ptr<Mark> latest() const {
    const std::scoped_lock lock(mutex_);
    return latest_;
  }
  std::shared_ptr<Mark> renew() {
    const std::scoped_lock lock(mutex_);
    return latest_ = std::make_shared<Mark>();
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Mark> latest_;
};

class DeferredStream final : public Stream {
 public:
  using Kernel = std::function<void(Device&, Stream&)>;

  DeferredStream(int threads, std::uint64_t seed)
      : device_(make_cpu_device(threads)),
        stream_(device_->make_stream("deferred")),
        random_(seed),
        worker_([this] { serve(); }) {}

  ~DeferredStream() override {
    {
      const std::scoped_lock lock(mutex_);
      closing_ = true;
      changed_.notify_all();
    }
    worker_.join();
  }

  void launch(Kernel kernel) {
    enqueue([this, call = std::move(kernel)] {
      delay();
      call(*device_, *stream_);
    });
  }

  void record(Event& event) override { enqueue_mark(dynamic_cast<DeferredEvent&>(event).renew()); }

  void wait(const Event& event) override {
    if (auto mark = dynamic_cast<const DeferredEvent&>(event).latest()) {
      enqueue([mark] { mark->wait(); });
    }
  }

  void synchronize() override {
    const auto end = std::make_shared<Mark>();
    enqueue_mark(end);
    try {
      end->wait();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      error_ = nullptr;  // reported
      throw;
    }
  }

 private:
  struct Task {
    std::function<void()> work;
    std::shared_ptr<Mark> mark;  ///< instead of work; reached even after an error
  };

  void enqueue(std::function<void()> work) { push({std::move(work), nullptr}); }
  void enqueue_mark(std::shared_ptr<Mark> mark) { push({nullptr, std::move(mark)}); }
  void push(Task task) {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(task));
    changed_.notify_all();
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) {
        return;
      }
      const Task task = std::move(queue_.front());
      queue_.pop_front();
      const std::exception_ptr before = error_;
      lock.unlock();
      std::exception_ptr after = before;
      if (task.mark != nullptr) {
        task.mark->reach(before);
      } else if (before == nullptr) {  // after an error nothing runs until it is reported
        try {
          task.work();
        } catch (...) {
          after = std::current_exception();
        }
      }
      lock.lock();
      if (before == nullptr && after != nullptr) {
        error_ = after;
      }
    }
  }

  /// Half of the kernels start at once, the others up to 200 us late.
  void delay() {
    if (std::bernoulli_distribution(0.5)(random_)) {
      const int us = std::uniform_int_distribution(0, 200)(random_);
      std::this_thread::sleep_for(std::chrono::microseconds(us));
    }
  }

  // A cpu device holds scratch memory, and is used by one thread at a time: each stream has its
  // own.
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  std::exception_ptr error_;
  bool closing_ = false;
  std::thread worker_;  // last: it uses all of the above
};

class DeferredDevice final : public Device {
 public:
  DeferredDevice(int threads, std::uint64_t seed)
      : memory_(make_cpu_device(threads)), threads_(threads), seed_(seed) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string describe() const override { return "deferred " + memory_->describe(); }
  void* allocate(std::size_t bytes) override { return memory_->allocate(bytes); }
  void deallocate(void* memory) noexcept override { memory_->deallocate(memory); }
  std::unique_ptr<Stream> make_stream(const std::string&) override {
    return std::make_unique<DeferredStream>(threads_, seed_++);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<DeferredEvent>(); }

  void copy(Stream& stream, const Tensor& from, const Tensor& to) override {
    launch(stream, [from, to](Device& cpu, Stream& s) { cpu.copy(s, from, to); });
  }
  void cast(Stream& stream, const Tensor& from, const Tensor& to) override {
    launch(stream, [from, to](Device& cpu, Stream& s) { cpu.cast(s, from, to); });
  }
  void fill_zero(Stream& stream, const Tensor& tensor) override {
    launch(stream, [tensor](Device& cpu, Stream& s) { cpu.fill_zero(s, tensor); });
  }
  void gemm(Stream& stream, const Gemm& args) override { defer<&Device::gemm>(stream, args); }
  void activation_forward(Stream& stream, const ActivationForward& args) override {
    defer<&Device::activation_forward>(stream, args);
  }
  void activation_backward(Stream& stream, const ActivationBackward& args) override {
    defer<&Device::activation_backward>(stream, args);
  }
  void norm_forward(Stream& stream, const NormForward& args) override {
    defer<&Device::norm_forward>(stream, args);
  }
  void norm_backward(Stream& stream, const NormBackward& args) override {
    defer<&Device::norm_backward>(stream, args);
  }
  void embedding_forward(Stream& stream, const EmbeddingForward& args) override {
    defer<&Device::embedding_forward>(stream, args);
  }
  void embedding_backward(Stream& stream, const EmbeddingBackward& args) override {
    defer<&Device::embedding_backward>(stream, args);
  }
  void cross_entropy_max(Stream& stream, const CrossEntropyMax& args) override {
    defer<&Device::cross_entropy_max>(stream, args);
  }
  void cross_entropy_sums(Stream& stream, const CrossEntropySums& args) override {
    defer<&Device::cross_entropy_sums>(stream, args);
  }
  void cross_entropy_backward(Stream& stream, const CrossEntropyBackward& args) override {
    defer<&Device::cross_entropy_backward>(stream, args);
  }
  void mean_squared_error(Stream& stream, const MeanSquaredError& args) override {
    defer<&Device::mean_squared_error>(stream, args);
  }
  void bias_dropout_add(Stream& stream, const BiasDropoutAdd& args) override {
    defer<&Device::bias_dropout_add>(stream, args);
  }
  void dropout_backward(Stream& stream, const DropoutBackward& args) override {
    defer<&Device::dropout_backward>(stream, args);
  }
  void column_sum(Stream& stream, const ColumnSum& args) override {
    defer<&Device::column_sum>(stream, args);
  }
  void sum_of_squares(Stream& stream, const SumOfSquares& args) override {
    defer<&Device::sum_of_squares>(stream, args);
  }
  void adamw(Stream& stream, const AdamW& args) override { defer<&Device::adamw>(stream, args); }
  void sgd(Stream& stream, const Sgd& args) override { defer<&Device::sgd>(stream, args); }
  void reduce_ranks(Stream& stream, const ReduceRanks& args) override {
    defer<&Device::reduce_ranks>(stream, args);
  }

 private:
  static void launch(Stream& stream, DeferredStream::Kernel kernel) {
    dynamic_cast<DeferredStream&>(stream).launch(std::move(kernel));
  }
  template <auto kKernel, typename Args>
  static void defer(Stream& stream, const Args& args) {
    launch(stream, [args](Device& cpu, Stream& s) { (cpu.*kKernel)(s, args); });
  }

  std::unique_ptr<Device> memory_;
  int threads_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Device> make_deferred_device(int threads, std::uint64_t seed) {
  return std::make_unique<DeferredDevice>(threads, seed);
}

}  // namespace tandem::testing
