#include "parallel/mpi/mpi_communicator.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "parallel/mpi/mpi_buffers.h"

namespace tandem {

namespace {

constexpr int kTagsPerGroup = 4;
// Offsets within a group's tags.
constexpr int kOpening = 0;
constexpr int kTransfer = 1;
constexpr int kScatter = 2;
constexpr int kGather = 3;

static_assert(sizeof(Announcement) <= kMpiHeaderBytes);

bool is_short(const Tensor& tensor) { return tensor.bytes() <= kMpiInlineBytes; }
bool is_nothing(const Tensor& tensor) { return tensor.absent() || tensor.numel() == 0; }

/// Flat elements [start, start + count).
Tensor part_of(const Tensor& tensor, std::int64_t start, std::int64_t count) {
  return tensor.flat().slice(0, start, count);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

MpiCommunicator::MpiCommunicator(std::string name, std::vector<int> ranks, int index,
                                 Device& device, Ledger* ledger, Profiler* profiler,
                                 std::shared_ptr<MpiTransport> transport, int number)
    : Communicator(std::move(name), std::move(ranks), index, device, ledger, profiler),
      transport_(std::move(transport)),
      tag_(kTagsPerGroup * number),
      outgoing_(static_cast<std::size_t>(size())),
      incoming_(static_cast<std::size_t>(size())) {}

void MpiCommunicator::open(const CollectiveOptions& options, const Tensors& outgoing) {
  if (options.after != nullptr) {
    options.after->synchronize();
  }
  const auto slots = static_cast<std::size_t>(size());
  std::byte* sent = sent_.reserve<std::byte>(slots * kMpiSlotBytes);
  inbox_ = received_.reserve<std::byte>(slots * kMpiSlotBytes);
  Announcement own = announcement();
  for (int r = 0; r < size(); ++r) {
    if (r != index()) {
      transport_->receive(batch_, inbox_ + static_cast<std::size_t>(r) * kMpiSlotBytes,
                          kMpiSlotBytes, world_rank(r), tag_ + kOpening);
    }
  }
  for (int r = 0; r < size(); ++r) {
    if (r == index()) {
      continue;
    }
    const Tensor& tensor = outgoing[static_cast<std::size_t>(r)];
    std::byte* slot = sent + static_cast<std::size_t>(r) * kMpiSlotBytes;
    std::size_t bytes = kMpiHeaderBytes;
    own.sent_to_reader = tensor.absent() ? 0 : tensor.numel();
    std::memcpy(slot, &own, sizeof own);
    if (!is_nothing(tensor) && is_short(tensor)) {
      std::memcpy(slot + kMpiHeaderBytes, tensor.data, tensor.bytes());
      bytes += tensor.bytes();
    }
    transport_->send(batch_, slot, bytes, world_rank(r), tag_ + kOpening);
  }
  wait(batch_);
  bool agreed = true;
  for (int r = 0; r < size(); ++r) {
    agreed = agreed && (r == index() || agree(own, announced_by(r)));
  }
  if (!agreed) {
    std::vector<Announcement> calls;
    for (int r = 0; r < size(); ++r) {
      calls.push_back(r == index() ? own : announced_by(r));
    }
    const Disagreement found = disagreement(ranks(), calls);
    throw PeerLost(transport_->raise({found.text, found.sides}));
  }
}

Announcement MpiCommunicator::announced_by(int peer) const {
  Announcement call;
  std::memcpy(&call, inbox_ + static_cast<std::size_t>(peer) * kMpiSlotBytes, sizeof call);
  return call;
}

Tensor MpiCommunicator::received(int peer, const Tensor& like) const {
  return {inbox_ + static_cast<std::size_t>(peer) * kMpiSlotBytes + kMpiHeaderBytes, like.dtype,
          Shape{like.numel()}};
}

void MpiCommunicator::transfer(const Tensors& outgoing, const Tensors& incoming) {
  const auto bytes_of = [](const Tensor& tensor) {
    return is_nothing(tensor) || is_short(tensor) ? std::size_t{0} : tensor.bytes();
  };
  std::size_t longest = 0;
  for (int i = 1; i < size(); ++i) {
    const auto r = static_cast<std::size_t>((index() + i) % size());
    longest = std::max({longest, bytes_of(outgoing[r]), bytes_of(incoming[r])});
  }
  const auto part = [&](const Tensor& tensor, std::size_t k) {
    const std::size_t start = std::min(k * kMpiPieceBytes, bytes_of(tensor));
    return std::span(tensor.data + start, std::min(kMpiPieceBytes, bytes_of(tensor) - start));
  };
  const auto post = [&](std::size_t k) {
    MpiBatch& batch = in_flight_[k % 2];
    for (int i = 1; i < size(); ++i) {
      const int r = (index() + i) % size();
      if (const auto to = part(incoming[static_cast<std::size_t>(r)], k); !to.empty()) {
        transport_->receive(batch, to.data(), to.size(), world_rank(r), tag_ + kTransfer);
      }
    }
    for (int i = 1; i < size(); ++i) {
      const int r = (index() + i) % size();
      if (const auto from = part(outgoing[static_cast<std::size_t>(r)], k); !from.empty()) {
        transport_->send(batch, from.data(), from.size(), world_rank(r), tag_ + kTransfer);
      }
    }
  };
  const std::size_t pieces = (longest + kMpiPieceBytes - 1) / kMpiPieceBytes;
  try {
    for (std::size_t k = 0; k < pieces; ++k) {
      if (k == 0) {
        post(0);
      }
      if (k + 1 < pieces) {
        post(k + 1);
      }
      wait(in_flight_[k % 2]);
    }
  } catch (...) {
    for (MpiBatch& batch : in_flight_) {
      transport_->withdraw(batch);
    }
    throw;
  }
  for (int r = 0; r < size(); ++r) {
    const Tensor& to = incoming[static_cast<std::size_t>(r)];
    if (is_nothing(to) || (r != index() && !is_short(to))) {
      continue;
    }
    const Tensor from =
        r == index() ? outgoing[static_cast<std::size_t>(r)].flat() : received(r, to);
    if (from.data != to.data) {
      device().copy(stream(), from, to.flat());
    }
  }
  stream().synchronize();
}

void MpiCommunicator::reduce(const Tensors& inputs, const Tensor& output, ReduceOp op) {
  device().reduce_ranks(stream(), {inputs, {output}, op});
  stream().synchronize();
}

template <typename Region, typename Result>
void MpiCommunicator::reduce_in_pieces(std::int64_t pieces, ReduceOp op, bool gather,
                                       Region&& region, Result&& result) {
  const auto peers = static_cast<std::size_t>(size() - 1);
  std::byte* memory = pieces_.reserve<std::byte>(2 * peers * kMpiPieceBytes);
  // Peers' versions of this rank's region of piece k, in rank order.
  const auto scratch = [&](std::int64_t k, int r, const Tensor& like) {
    const auto slot =
        static_cast<std::size_t>(k % 2) * peers + static_cast<std::size_t>(r < index() ? r : r - 1);
    return Tensor(memory + slot * kMpiPieceBytes, like.dtype, like.shape);
  };
  const auto post = [&](MpiBatch& batch, const Tensor& tensor, int r, int tag, bool is_send) {
    if (tensor.numel() == 0) {
      return;
    }
    if (is_send) {
      transport_->send(batch, tensor.data, tensor.bytes(), world_rank(r), tag);
    } else {
      transport_->receive(batch, tensor.data, tensor.bytes(), world_rank(r), tag);
    }
  };
  const auto scatter = [&](std::int64_t k) {
    const Tensor own = region(k, index());
    for (int i = 1; i < size(); ++i) {
      const int r = (index() + i) % size();
      post(in_flight_[k % 2], scratch(k, r, own), r, tag_ + kScatter, false);
    }
    for (int i = 1; i < size(); ++i) {
      const int r = (index() + i) % size();
      post(in_flight_[k % 2], region(k, r), r, tag_ + kScatter, true);
    }
  };
  const auto run = [&](std::int64_t k) {
    if (k + 1 < pieces) {
      scatter(k + 1);
    }
    wait(in_flight_[k % 2]);
    const Tensor own = region(k, index());
    if (own.numel() > 0) {
      for (int r = 0; r < size(); ++r) {
        incoming_[static_cast<std::size_t>(r)] = r == index() ? own : scratch(k, r, own);
      }
      reduce(incoming_, result(k), op);
    }
    if (gather) {
      wait(gather_);
      for (int i = 1; i < size(); ++i) {
        const int r = (index() + i) % size();
        post(gather_, region(k, r), r, tag_ + kGather, false);
        post(gather_, own, r, tag_ + kGather, true);
      }
    }
  };
  try {
    scatter(0);
    for (std::int64_t k = 0; k < pieces; ++k) {
      run(k);
    }
    wait(gather_);
  } catch (...) {
    for (MpiBatch* batch : {&in_flight_[0], &in_flight_[1], &gather_}) {
      transport_->withdraw(*batch);
    }
    throw;
  }
}

Work MpiCommunicator::do_all_reduce(const Tensor& tensor, const CollectiveOptions& options) {
  if (is_short(tensor)) {
    std::fill(outgoing_.begin(), outgoing_.end(), tensor.flat());
    open(options, outgoing_);
    if (tensor.numel() > 0) {
      for (int r = 0; r < size(); ++r) {
        incoming_[static_cast<std::size_t>(r)] = r == index() ? tensor.flat() : received(r, tensor);
      }
      reduce(incoming_, tensor.flat(), options.op);
    }
    return {};
  }
  std::fill(outgoing_.begin(), outgoing_.end(), Tensor{});
  open(options, outgoing_);
  const std::int64_t total = tensor.numel();
  const auto most = static_cast<std::int64_t>(kMpiPieceBytes / size_of(tensor.dtype)) * size();
  const std::int64_t pieces = ceil_div(total, most);
  const std::int64_t chunk = ceil_div(ceil_div(total, pieces), size());
  const auto region = [&](std::int64_t k, int r) {
    const std::int64_t start = std::min((k * size() + r) * chunk, total);
    return part_of(tensor, start, std::min(chunk, total - start));
  };
  reduce_in_pieces(pieces, options.op, true, region,
                   [&](std::int64_t k) { return region(k, index()); });
  return {};
}

Work MpiCommunicator::do_reduce_scatter(const Tensor& input, const Tensor& output,
                                        const CollectiveOptions& options) {
  const std::int64_t total = output.numel();
  const bool inside = is_short(output);
  for (int r = 0; r < size(); ++r) {
    outgoing_[static_cast<std::size_t>(r)] = inside ? part_of(input, r * total, total) : Tensor{};
  }
  open(options, outgoing_);
  if (inside) {
    if (total > 0) {
      for (int r = 0; r < size(); ++r) {
        incoming_[static_cast<std::size_t>(r)] =
            r == index() ? part_of(input, r * total, total) : received(r, output);
      }
      reduce(incoming_, output.flat(), options.op);
    }
    return {};
  }
  const auto most = static_cast<std::int64_t>(kMpiPieceBytes / size_of(output.dtype));
  const std::int64_t pieces = ceil_div(total, most);
  const auto start = [&](std::int64_t k) { return std::min(k * most, total); };
  reduce_in_pieces(
      pieces, options.op, false,
      [&](std::int64_t k, int r) {
        return part_of(input, r * total + start(k), start(k + 1) - start(k));
      },
      [&](std::int64_t k) { return part_of(output, start(k), start(k + 1) - start(k)); });
  return {};
}

Work MpiCommunicator::do_all_gather(const Tensor& input, const Tensor& output,
                                    const CollectiveOptions& options) {
  std::fill(outgoing_.begin(), outgoing_.end(), input);
  for (int r = 0; r < size(); ++r) {
    incoming_[static_cast<std::size_t>(r)] = part_of(output, r * input.numel(), input.numel());
  }
  open(options, outgoing_);
  transfer(outgoing_, incoming_);
  return {};
}

Work MpiCommunicator::do_all_to_all(const Tensor& input, std::span<const std::int64_t> send_rows,
                                    const Tensor& output,
                                    std::span<const std::int64_t> receive_rows,
                                    const CollectiveOptions& options) {
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (std::size_t r = 0; r < outgoing_.size(); ++r) {
    outgoing_[r] = input.slice(0, sent, send_rows[r]);
    incoming_[r] = output.slice(0, received, receive_rows[r]);
    sent += send_rows[r];
    received += receive_rows[r];
  }
  open(options, outgoing_);
  check_counts();
  transfer(outgoing_, incoming_);
  return {};
}

void MpiCommunicator::check_counts() const {
  for (std::size_t r = 0; r < incoming_.size(); ++r) {
    const int peer = static_cast<int>(r);
    const std::int64_t sent =
        peer == index() ? outgoing_[r].numel() : announced_by(peer).sent_to_reader;
    if (sent != incoming_[r].numel()) {
      const int sender = ranks()[r];
      const int reader = world_rank(index());
      throw PeerLost(transport_->raise(
          {current().to_string() + " in group " + name() + " " + to_string(ranks()) + ": rank " +
               std::to_string(sender) + " sends " + std::to_string(sent) + " elements to rank " +
               std::to_string(reader) + ", which expects " + std::to_string(incoming_[r].numel()),
           {sender, reader}}));
    }
  }
}

Work MpiCommunicator::do_broadcast(const Tensor& tensor, int root,
                                   const CollectiveOptions& options) {
  std::fill(outgoing_.begin(), outgoing_.end(), index() == root ? tensor : Tensor{});
  std::fill(incoming_.begin(), incoming_.end(), Tensor{});
  incoming_[static_cast<std::size_t>(root)] = tensor;
  open(options, outgoing_);
  transfer(outgoing_, incoming_);
  return {};
}

Work MpiCommunicator::do_barrier(const CollectiveOptions& options) {
  std::fill(outgoing_.begin(), outgoing_.end(), Tensor{});
  open(options, outgoing_);
  return {};
}

}  // namespace tandem
