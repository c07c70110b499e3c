#include "tests/support/deferred_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "tests/support/guarded_memory.h"

namespace tandem::testing {
namespace {

std::atomic<std::uint64_t> kernels_begun{0};

/// One recorded point of one stream. An event points at its latest; who waits keeps the one that
/// was latest at the time of the call.
class Mark {
 public:
  void reach(std::exception_ptr error) {
    const std::scoped_lock lock(mutex_);
    reached_ = std::chrono::steady_clock::now();
    error_ = std::move(error);
    changed_.notify_all();
  }
  /// Blocks until reached; throws what went wrong before it.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_.has_value(); });
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
  }

  std::optional<std::chrono::steady_clock::time_point> reached() {
    const std::scoped_lock lock(mutex_);
    return reached_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::chrono::steady_clock::time_point> reached_;
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
      ++kernels_begun;
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
  DeferredDevice(int threads, std::uint64_t seed) : threads_(threads), seed_(seed) {}
  ~DeferredDevice() override {
    if (staging_ != 0) {
      std::fprintf(stderr, "%d staging buffers of a deferred device were not freed\n",
                   staging_.load());
      std::abort();
    }
  }

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string describe() const override {
    return "deferred " + make_cpu_device(threads_)->describe();
  }
  void* allocate_staging(std::size_t bytes) override {
    ++staging_;
    return Device::allocate_staging(bytes);
  }
  void deallocate_staging(void* memory) noexcept override {
    staging_ -= memory == nullptr ? 0 : 1;
    Device::deallocate_staging(memory);
  }
  void* allocate(std::size_t bytes) override { return allocate_guarded(bytes); }
  void deallocate(void* memory) noexcept override { free_guarded(memory); }
  bool host_memory() const override { return false; }
  /// A small GPU's, whatever is allocated.
  std::size_t free_memory() const override { return std::size_t{8} << 20; }
  std::unique_ptr<Stream> make_stream(const std::string&) override {
    return std::make_unique<DeferredStream>(threads_, seed_++);
  }
  std::unique_ptr<Event> make_event() override { return make_deferred_event(); }

  void copy(Stream& stream, const Tensor& from, const Tensor& to) override {
    launch(stream, [from = reachable(from), to = reachable(to)](Device& cpu, Stream& s) {
      cpu.copy(s, from, to);
    });
  }
  void cast(Stream& stream, const Tensor& from, const Tensor& to) override {
    launch(stream, [from = reachable_on_device(from), to = reachable_on_device(to)](
                       Device& cpu, Stream& s) { cpu.cast(s, from, to); });
  }
  void fill_zero(Stream& stream, const Tensor& tensor) override {
    launch(stream, [tensor = reachable_on_device(tensor)](Device& cpu, Stream& s) {
      cpu.fill_zero(s, tensor);
    });
  }
  void gemm(Stream& stream, const Gemm& args) override {
    defer<&Device::gemm>(stream, args, {&Gemm::a, &Gemm::b, &Gemm::c, &Gemm::bias});
  }
  void activation_forward(Stream& stream, const ActivationForward& args) override {
    defer<&Device::activation_forward>(stream, args,
                                       {&ActivationForward::pre, &ActivationForward::out});
  }
  void activation_backward(Stream& stream, const ActivationBackward& args) override {
    defer<&Device::activation_backward>(
        stream, args,
        {&ActivationBackward::pre, &ActivationBackward::d_out, &ActivationBackward::d_pre});
  }
  void norm_forward(Stream& stream, const NormForward& args) override {
    defer<&Device::norm_forward>(stream, args,
                                 {&NormForward::x, &NormForward::weight, &NormForward::bias,
                                  &NormForward::y, &NormForward::mean, &NormForward::rstd});
  }
  void norm_backward(Stream& stream, const NormBackward& args) override {
    defer<&Device::norm_backward>(
        stream, args,
        {&NormBackward::d_y, &NormBackward::x, &NormBackward::weight, &NormBackward::mean,
         &NormBackward::rstd, &NormBackward::residual, &NormBackward::d_x, &NormBackward::d_weight,
         &NormBackward::d_bias});
  }
  void embedding_forward(Stream& stream, const EmbeddingForward& args) override {
    defer<&Device::embedding_forward>(
        stream, args, {&EmbeddingForward::ids, &EmbeddingForward::table, &EmbeddingForward::y});
  }
  void embedding_backward(Stream& stream, const EmbeddingBackward& args) override {
    defer<&Device::embedding_backward>(
        stream, args,
        {&EmbeddingBackward::ids, &EmbeddingBackward::d_y, &EmbeddingBackward::d_table,
         &EmbeddingBackward::workspace});
  }
  void cross_entropy_max(Stream& stream, const CrossEntropyMax& args) override {
    defer<&Device::cross_entropy_max>(stream, args,
                                      {&CrossEntropyMax::logits, &CrossEntropyMax::row_max});
  }
  void cross_entropy_sums(Stream& stream, const CrossEntropySums& args) override {
    defer<&Device::cross_entropy_sums>(stream, args,
                                       {&CrossEntropySums::logits, &CrossEntropySums::targets,
                                        &CrossEntropySums::row_max, &CrossEntropySums::sums});
  }
  void cross_entropy_backward(Stream& stream, const CrossEntropyBackward& args) override {
    defer<&Device::cross_entropy_backward>(
        stream, args,
        {&CrossEntropyBackward::logits, &CrossEntropyBackward::targets,
         &CrossEntropyBackward::row_max, &CrossEntropyBackward::sums,
         &CrossEntropyBackward::d_logits, &CrossEntropyBackward::loss_sum});
  }
  void mean_squared_error(Stream& stream, const MeanSquaredError& args) override {
    defer<&Device::mean_squared_error>(stream, args,
                                       {&MeanSquaredError::y, &MeanSquaredError::target,
                                        &MeanSquaredError::d_y, &MeanSquaredError::loss_sum});
  }
  void bias_dropout_add(Stream& stream, const BiasDropoutAdd& args) override {
    defer<&Device::bias_dropout_add>(
        stream, args,
        {&BiasDropoutAdd::branch, &BiasDropoutAdd::bias, &BiasDropoutAdd::residual,
         &BiasDropoutAdd::out, &BiasDropoutAdd::row_keys});
  }
  void dropout_backward(Stream& stream, const DropoutBackward& args) override {
    defer<&Device::dropout_backward>(
        stream, args,
        {&DropoutBackward::d_out, &DropoutBackward::d_in, &DropoutBackward::row_keys});
  }
  void column_sum(Stream& stream, const ColumnSum& args) override {
    defer<&Device::column_sum>(stream, args, {&ColumnSum::x, &ColumnSum::out});
  }
  void sum_of_squares(Stream& stream, const SumOfSquares& args) override {
    defer<&Device::sum_of_squares>(stream, args, {&SumOfSquares::x, &SumOfSquares::out});
  }
  void adamw(Stream& stream, const AdamW& args) override {
    defer<&Device::adamw>(stream, args,
                          {&AdamW::master, &AdamW::m, &AdamW::v, &AdamW::grad, &AdamW::weight});
  }
  void sgd(Stream& stream, const Sgd& args) override {
    defer<&Device::sgd>(stream, args, {&Sgd::master, &Sgd::buffer, &Sgd::grad, &Sgd::weight});
  }
  void reduce_ranks(Stream& stream, const ReduceRanks& args) override {
    ReduceRanks here = args;
    for (auto* tensors : {&here.inputs, &here.outputs}) {
      std::transform(tensors->begin(), tensors->end(), tensors->begin(), reachable_on_device);
    }
    launch(stream, [here](Device& cpu, Stream& s) { cpu.reduce_ranks(s, here); });
  }

 private:
  static void launch(Stream& stream, DeferredStream::Kernel kernel) {
    dynamic_cast<DeferredStream&>(stream).launch(std::move(kernel));
  }
  /// `tensors`: all that the kernel has. One that is forgotten crashes.
  template <auto kKernel, typename Args>
  static void defer(Stream& stream, Args args, std::initializer_list<Tensor Args::*> tensors) {
    for (Tensor Args::*tensor : tensors) {
      args.*tensor = reachable_on_device(args.*tensor);
    }
    launch(stream, [args](Device& cpu, Stream& s) { (cpu.*kKernel)(s, args); });
  }

  std::atomic<int> staging_ = 0;
  int threads_;
  std::uint64_t seed_;
};

}  // namespace

std::uint64_t begun_kernels() { return kernels_begun; }

std::unique_ptr<Event> make_deferred_event() { return std::make_unique<DeferredEvent>(); }

void enqueue(Stream& stream, std::function<void()> work) {
  dynamic_cast<DeferredStream&>(stream).launch(
      [call = std::move(work)](Device&, Stream&) { call(); });
}

std::optional<std::chrono::steady_clock::time_point> reached_at(const Event& event) {
  const auto mark = dynamic_cast<const DeferredEvent&>(event).latest();
  return mark == nullptr ? std::chrono::steady_clock::time_point{} : mark->reached();
}

std::unique_ptr<Device> make_deferred_device(int threads, std::uint64_t seed) {
  return std::make_unique<DeferredDevice>(threads, seed);
}

}  // namespace tandem::testing
