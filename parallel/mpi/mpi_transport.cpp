#include "parallel/mpi/mpi_transport.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <climits>
#include <thread>

namespace tandem {

namespace {

constexpr int kGaveUpTag = 1;
constexpr int kLeavingTag = 2;
constexpr int kMaxReason = 2048;

// A wait spins where every rank has a processor, then offers its processor to others, then sleeps
// for longer and longer.
constexpr auto kSpin = std::chrono::microseconds(10);
constexpr auto kYield = std::chrono::microseconds(200);
constexpr auto kFirstSleep = std::chrono::microseconds(20);
constexpr auto kLongestSleep = std::chrono::microseconds(200);
constexpr int kTestsPerListen = 64;
/// What a rank that left had sent before is here by then.
constexpr auto kStragglers = std::chrono::milliseconds(200);
/// How long messages that nobody may want any more are given to pass.
constexpr double kWithdrawSeconds = 0.1;
constexpr double kGiveUpSeconds = 0.5;
/// How long a rank of a failed world waits for the others to notice.
constexpr double kLeaveSeconds = 5.0;

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw PeerLost(std::string(call) + " failed: " + text.data());
  }
}

int int_count(std::size_t bytes) {
  ensure(bytes <= INT_MAX, "a message is longer than MPI can count");
  return static_cast<int>(bytes);
}

void post_send(MPI_Comm comm, MpiBatch& batch, const void* data, std::size_t bytes, int peer,
               int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(data, int_count(bytes), MPI_BYTE, peer, tag, comm, &request), "MPI_Isend");
  batch.requests.push_back(request);
  batch.peers.push_back(peer);
}

}  // namespace

MpiTransport::MpiTransport(double timeout_s) : timeout_s_(timeout_s) {
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  ensure(provided >= MPI_THREAD_SERIALIZED,
         "this MPI library lacks MPI_THREAD_SERIALIZED; use Open MPI or another one with threads");
  for (MPI_Comm* comm : {&data_, &words_}) {
    check(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  check(MPI_Comm_rank(data_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(data_, &size_), "MPI_Comm_size");
  crowded_ = static_cast<unsigned>(size_) > std::thread::hardware_concurrency();
  left_.resize(static_cast<std::size_t>(size_));
}

MpiTransport::~MpiTransport() {
  if (all_leave()) {
    MPI_Comm_free(&words_);
    MPI_Comm_free(&data_);
    MPI_Finalize();
  }
}

void MpiTransport::check_world() {
  listen();
  if (!failure_.empty() || !peer_gave_up_.empty()) {
    throw PeerLost(failure_.empty() ? peer_gave_up_ : failure_);
  }
}

void MpiTransport::send(MpiBatch& batch, const void* data, std::size_t bytes, int peer, int tag) {
  post_send(data_, batch, data, bytes, peer, tag);
}

void MpiTransport::receive(MpiBatch& batch, void* data, std::size_t bytes, int peer, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(data, int_count(bytes), MPI_BYTE, peer, tag, data_, &request), "MPI_Irecv");
  batch.requests.push_back(request);
  batch.peers.push_back(peer);
}

void MpiTransport::wait(MpiBatch& batch, const LedgerEntry& entry, std::span<const int> ranks) {
  const auto start = Clock::now();
  auto sleep = kFirstSleep;
  const int count = static_cast<int>(batch.requests.size());
  try {
    for (int tests = 1;; ++tests) {
      int done = 0;
      check(MPI_Testall(count, batch.requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
      if (done != 0) {
        break;
      }
      const auto waited = Clock::now() - start;
      if (waited < kYield) {
        if (crowded_ || waited > kSpin) {
          sched_yield();
        }
        if (tests % kTestsPerListen != 0) {
          continue;
        }
      } else {
        std::this_thread::sleep_for(sleep);
        sleep = std::min(sleep * 2, kLongestSleep);
      }
      listen();
      check_peers(batch, entry, ranks, start);
    }
  } catch (const std::exception& error) {
    failure_ = error.what();
    withdraw(batch);
    throw;
  }
  batch.requests.clear();
  batch.peers.clear();
}

void MpiTransport::listen() {
  int waiting = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, words_, &waiting, &status), "MPI_Iprobe");
  if (waiting == 0) {
    return;
  }
  std::array<char, kMaxReason> text{};
  int length = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &length), "MPI_Get_count");
  check(MPI_Recv(text.data(), kMaxReason, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, words_,
                 MPI_STATUS_IGNORE),
        "MPI_Recv");
  if (status.MPI_TAG == kLeavingTag) {
    left_[static_cast<std::size_t>(status.MPI_SOURCE)] = 1;
    last_left_ = Clock::now();
  } else if (peer_gave_up_.empty()) {
    peer_gave_up_ = "rank " + std::to_string(status.MPI_SOURCE) +
                    " gave up: " + std::string(text.data(), static_cast<std::size_t>(length));
  }
}

void MpiTransport::check_peers(const MpiBatch& batch, const LedgerEntry& entry,
                               std::span<const int> ranks, Clock::time_point start) {
  if (!peer_gave_up_.empty()) {
    throw PeerLost(peer_gave_up_);
  }
  const auto now = Clock::now();
  if (last_left_ != Clock::time_point{} && now - last_left_ > kStragglers &&
      now - start > kStragglers) {
    for (const int peer : unanswered(batch)) {
      if (left_[static_cast<std::size_t>(peer)] != 0) {
        throw PeerLost("rank " + std::to_string(peer) + " ended without " + entry.to_string() +
                       " in group " + std::string(entry.group.view()) + " " + to_string(ranks));
      }
    }
  }
  const double waited = std::chrono::duration<double>(now - start).count();
  if (waited > timeout_s_) {
    throw PeerLost(time_out(entry, ranks, unanswered(batch), waited));
  }
}

std::vector<int> MpiTransport::unanswered(const MpiBatch& batch) const {
  std::vector<int> peers;
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    int done = 1;
    if (batch.requests[i] != MPI_REQUEST_NULL) {
      MPI_Request_get_status(batch.requests[i], &done, MPI_STATUS_IGNORE);
    }
    if (done == 0) {
      peers.push_back(batch.peers[i]);
    }
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

void MpiTransport::withdraw(MpiBatch& batch) noexcept {
  for (MPI_Request& request : batch.requests) {
    if (request != MPI_REQUEST_NULL) {
      MPI_Cancel(&request);
    }
  }
  try_wait(batch, kWithdrawSeconds);
}

bool MpiTransport::try_wait(MpiBatch& batch, double seconds) noexcept {
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  int done = 0;
  do {
    if (MPI_Testall(static_cast<int>(batch.requests.size()), batch.requests.data(), &done,
                    MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
      return false;
    }
    if (done == 0) {
      std::this_thread::sleep_for(kLongestSleep);
    }
  } while (done == 0 && Clock::now() < deadline);
  return done != 0;
}

void MpiTransport::give_up(const std::string& why) noexcept {
  if (!farewell_.empty()) {
    return;
  }
  try {
    failure_ = "this rank gave up: " + why;
    farewell_ = why.substr(0, kMaxReason);
    MpiBatch batch;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) {
        post_send(words_, batch, farewell_.data(), farewell_.size(), peer, kGaveUpTag);
      }
    }
    try_wait(batch, kGiveUpSeconds);
  } catch (...) {  // the peers find out by time-out
  }
}

bool MpiTransport::all_leave() noexcept {
  try {
    MpiBatch farewells;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) {
        post_send(words_, farewells, nullptr, 0, peer, kLeavingTag);
      }
    }
    left_[static_cast<std::size_t>(rank_)] = 1;
    const auto start = Clock::now();
    for (;;) {
      listen();
      if (std::all_of(left_.begin(), left_.end(), [](char left) { return left != 0; })) {
        break;
      }
      const bool failed = !failure_.empty() || !peer_gave_up_.empty();
      if (failed && Clock::now() - start > std::chrono::duration<double>(kLeaveSeconds)) {
        return false;
      }
      std::this_thread::sleep_for(kLongestSleep);
    }
    return try_wait(farewells, kGiveUpSeconds);
  } catch (...) {
    return false;
  }
}

}  // namespace tandem
