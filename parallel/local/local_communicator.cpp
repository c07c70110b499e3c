#include "parallel/local/local_communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tandem {

namespace {

/// Parts of an in-place reduction begin at cache lines, so that no two ranks write one line.
constexpr std::int64_t kLineBytes = 64;

class LocalWork final : public Work::State {
 public:
  LocalWork(std::shared_ptr<LocalGroup> group, Exchange& exchange)
      : group_(std::move(group)), exchange_(&exchange) {}
  LocalWork(const LocalWork&) = delete;
  LocalWork& operator=(const LocalWork&) = delete;
  /// A rank that drops its work unread, as when it throws, may free its buffers next: not before
  /// its peers are done with them.
  ~LocalWork() override {
    try {
      if (!waited_) {
        synchronize();
      }
    } catch (...) {  // whoever queued what failed is told at its own wait
    }
    group_->release(*exchange_);
  }

  void wait(Stream& stream) override {
    group_->wait_finished(*exchange_);
    group_->check_well(*exchange_);
    for (const Posting& posting : exchange_->postings) {
      stream.wait(*posting.done);
    }
    waited_ = true;
  }
  void wait_host() override {
    synchronize();
    group_->check_well(*exchange_);
    waited_ = true;
  }

 private:
  void synchronize() {
    group_->wait_finished(*exchange_);
    for (const Posting& posting : exchange_->postings) {
      posting.done->synchronize();
    }
  }

  std::shared_ptr<LocalGroup> group_;
  Exchange* exchange_;
  bool waited_ = false;
};

/// Flat elements [start, start + count).
Tensor part_of(const Tensor& tensor, std::int64_t start, std::int64_t count) {
  return tensor.flat().slice(0, start, count);
}

std::int64_t sum_before(const std::vector<std::int64_t>& rows, int index) {
  return std::accumulate(rows.begin(), rows.begin() + index, std::int64_t{0});
}

}  // namespace

LocalCommunicator::LocalCommunicator(std::string name, std::vector<int> ranks, int index,
                                     Device& device, Ledger* ledger, Profiler* profiler,
                                     std::shared_ptr<LocalGroup> group)
    : Communicator(std::move(name), std::move(ranks), index, device, ledger, profiler),
      group_(std::move(group)) {}

template <typename Fill, typename Part>
Work LocalCommunicator::run(const CollectiveOptions& options, Fill&& fill, Part&& part) {
  Exchange& exchange = group_->open(current().sequence);
  Posting& own = exchange.postings[static_cast<std::size_t>(index())];
  own.call = announcement();
  own.input = own.output = {};
  if (own.ready == nullptr) {
    own.ready = device().make_event();
    own.done = device().make_event();
  }
  own.has_ready = options.after != nullptr;
  if (own.has_ready) {
    options.after->record(*own.ready);
  }
  fill(own);
  group_->arrive(exchange);
  auto work = std::make_shared<LocalWork>(group_, exchange);
  try {
    for (const Posting& posting : exchange.postings) {
      if (posting.has_ready) {
        stream().wait(*posting.ready);
      }
    }
    part(exchange);
    stream().record(*own.done);
  } catch (const std::exception& error) {
    group_->raise({"rank " + std::to_string(ranks()[static_cast<std::size_t>(index())]) +
                   " failed in " + current().to_string() + ": " + error.what()});
    group_->finish(exchange, false);
    throw;
  }
  group_->finish(exchange, true);
  return Work(std::move(work));
}

Work LocalCommunicator::do_all_reduce(const Tensor& tensor, const CollectiveOptions& options) {
  return run(
      options, [&](Posting& own) { own.input = tensor; },
      [&](const Exchange& exchange) {
        const std::int64_t line = kLineBytes / static_cast<std::int64_t>(size_of(tensor.dtype));
        const std::int64_t even = (tensor.numel() + size() - 1) / size();
        const std::int64_t chunk = (even + line - 1) / line * line;
        const std::int64_t start = std::min(index() * chunk, tensor.numel());
        const std::int64_t count = std::min(chunk, tensor.numel() - start);
        if (count == 0) {
          return;
        }
        ReduceRanks args;
        args.op = options.op;
        for (const Posting& posting : exchange.postings) {
          args.inputs.push_back(part_of(posting.input, start, count));
        }
        args.outputs = args.inputs;
        device().reduce_ranks(stream(), args);
      });
}

Work LocalCommunicator::do_all_gather(const Tensor& input, const Tensor& output,
                                      const CollectiveOptions& options) {
  return run(
      options, [&](Posting& own) { own.input = input; },
      [&](const Exchange& exchange) {
        for (int r = 0; r < size(); ++r) {
          const Tensor& from = exchange.postings[static_cast<std::size_t>(r)].input;
          const Tensor to = part_of(output, r * input.numel(), input.numel());
          if (input.numel() > 0 && from.data != to.data) {
            device().copy(stream(), from.flat(), to);
          }
        }
      });
}

Work LocalCommunicator::do_reduce_scatter(const Tensor& input, const Tensor& output,
                                          const CollectiveOptions& options) {
  return run(
      options, [&](Posting& own) { own.input = input; },
      [&](const Exchange& exchange) {
        if (output.numel() == 0) {
          return;
        }
        ReduceRanks args;
        args.op = options.op;
        for (const Posting& posting : exchange.postings) {
          args.inputs.push_back(part_of(posting.input, index() * output.numel(), output.numel()));
        }
        args.outputs = {output.flat()};
        device().reduce_ranks(stream(), args);
      });
}

Work LocalCommunicator::do_all_to_all(const Tensor& input, std::span<const std::int64_t> send_rows,
                                      const Tensor& output,
                                      std::span<const std::int64_t> receive_rows,
                                      const CollectiveOptions& options) {
  return run(
      options,
      [&](Posting& own) {
        own.input = input;
        own.send_rows.assign(send_rows.begin(), send_rows.end());
        own.receive_rows.assign(receive_rows.begin(), receive_rows.end());
      },
      [&](const Exchange& exchange) {
        check_counts(exchange);
        std::int64_t row = 0;
        for (int r = 0; r < size(); ++r) {
          const Posting& peer = exchange.postings[static_cast<std::size_t>(r)];
          const std::int64_t rows = receive_rows[static_cast<std::size_t>(r)];
          const Tensor to = output.slice(0, row, rows);
          row += rows;
          if (to.numel() > 0) {
            const Tensor from = peer.input.slice(0, sum_before(peer.send_rows, index()), rows);
            device().copy(stream(), from.flat(), to.flat());
          }
        }
      });
}

void LocalCommunicator::check_counts(const Exchange& exchange) {
  for (std::size_t from = 0; from < exchange.postings.size(); ++from) {
    for (std::size_t to = 0; to < exchange.postings.size(); ++to) {
      const std::int64_t sent = exchange.postings[from].send_rows[to];
      const std::int64_t expected = exchange.postings[to].receive_rows[from];
      if (sent != expected) {
        throw PeerLost(current().to_string() + " in group " + name() + " " + to_string(ranks()) +
                       ": rank " + std::to_string(ranks()[from]) + " sends " +
                       std::to_string(sent) + " rows to rank " + std::to_string(ranks()[to]) +
                       ", which expects " + std::to_string(expected));
      }
    }
  }
}

Work LocalCommunicator::do_broadcast(const Tensor& tensor, int root,
                                     const CollectiveOptions& options) {
  return run(
      options, [&](Posting& own) { own.input = tensor; },
      [&](const Exchange& exchange) {
        if (index() != root && tensor.numel() > 0) {
          device().copy(stream(), exchange.postings[static_cast<std::size_t>(root)].input.flat(),
                        tensor.flat());
        }
      });
}

Work LocalCommunicator::do_barrier(const CollectiveOptions& options) {
  return run(
      options, [](Posting&) {}, [](const Exchange&) {});
}

}  // namespace tandem
