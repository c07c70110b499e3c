#include "parallel/mpi/mpi_transport.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <climits>
#include <thread>

namespace tandem {

namespace {

// A wait spins where every rank has a processor, then offers its processor to others, then sleeps
// for longer and longer. MPI moves nothing while a rank sleeps, so not before a piece of a long
// message has had its time to pass between ranks that take turns on a processor.
constexpr auto kSpin = std::chrono::microseconds(10);
constexpr auto kYield = std::chrono::microseconds(2000);
constexpr auto kFirstSleep = std::chrono::microseconds(20);
constexpr auto kLongestSleep = std::chrono::microseconds(200);
/// How long messages that nobody may want any more are given to pass.
constexpr double kWithdrawSeconds = 0.1;
/// How often a rank that leaves looks whether the job has failed, and how long it then waits for
/// the others to leave, if its process may live for so long.
constexpr double kLook = 0.1;
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

void post_receive(MPI_Comm comm, MpiBatch& batch, void* data, std::size_t bytes, int peer,
                  int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(data, int_count(bytes), MPI_BYTE, peer, tag, comm, &request), "MPI_Irecv");
  batch.requests.push_back(request);
  batch.peers.push_back(peer);
}

}  // namespace

MpiTransport::MpiTransport(const WorldOptions& options) {
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  ensure(provided >= MPI_THREAD_SERIALIZED,
         "this MPI library lacks MPI_THREAD_SERIALIZED; use Open MPI or another one with threads");
  for (MPI_Comm* comm : {&data_, &farewells_}) {
    check(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  check(MPI_Comm_rank(data_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(data_, &size_), "MPI_Comm_size");
  recorder_ = std::make_unique<FlightRecorder>(rank_);
  channel_ = std::make_unique<SideChannel>(*recorder_, rank_, size_, options);
  if (size_ > 1) {
    using Address = SideChannel::Address;
    const Address own = channel_->address();
    std::vector<Address> all(static_cast<std::size_t>(size_));
    check(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, data_),
          "MPI_Allgather");
    const auto here = std::count_if(all.begin(), all.end(),
                                    [&](const Address& other) { return other.host == own.host; });
    crowded_ = here > static_cast<std::ptrdiff_t>(std::thread::hardware_concurrency());
    channel_->open(all);
  }
}

MpiTransport::~MpiTransport() {
  recorder_->end();
  if (all_leave()) {
    channel_->close();
    MPI_Comm_free(&farewells_);
    MPI_Comm_free(&data_);
    MPI_Finalize();
  }
}

void MpiTransport::send(MpiBatch& batch, const void* data, std::size_t bytes, int peer, int tag) {
  post_send(data_, batch, data, bytes, peer, tag);
}

void MpiTransport::receive(MpiBatch& batch, void* data, std::size_t bytes, int peer, int tag) {
  post_receive(data_, batch, data, bytes, peer, tag);
}

void MpiTransport::wait(MpiBatch& batch) {
  const auto start = Clock::now();
  auto sleep = kFirstSleep;
  const int count = static_cast<int>(batch.requests.size());
  try {
    for (;;) {
      check_world();  // first: what peers sent before they gave up may all be here
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
      } else {
        std::this_thread::sleep_for(sleep);
        sleep = std::min(sleep * 2, kLongestSleep);
      }
    }
  } catch (...) {
    withdraw(batch);
    throw;
  }
  batch.requests.clear();
  batch.peers.clear();
}

void MpiTransport::withdraw(MpiBatch& batch) noexcept {
  if (channel_->broken()) {  // Open MPI itself may crash over a peer that is gone
    return;
  }
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

bool MpiTransport::all_leave() noexcept {
  try {
    if (channel_->broken()) {
      return false;
    }
    MpiBatch farewells;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) {
        post_send(farewells_, farewells, nullptr, 0, peer, 0);
        post_receive(farewells_, farewells, nullptr, 0, peer, 0);
      }
    }
    while (!channel_->over()) {
      if (try_wait(farewells, kLook)) {
        return true;
      }
    }
    return !channel_->broken() && try_wait(farewells, kLeaveSeconds);
  } catch (...) {
    return false;
  }
}

}  // namespace tandem
