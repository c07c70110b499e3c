#include "parallel/side_channel.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>

#include "parallel/side_channel_impl.h"

namespace tandem {

namespace {

using std::chrono::milliseconds;

constexpr auto kTick = milliseconds(250);
/// A hub that was not heard of for so long does not hear either.
constexpr double kHubSilence = 1.0;
/// Between the ranks that may take over for a hub, so that the lowest does.
constexpr auto kNextInLine = milliseconds(250);
/// What a rank is given to leave by itself once there is a report.
constexpr auto kLeave = milliseconds(900);
constexpr auto kPassedOn = milliseconds(100);
/// A rank whose own thread did nothing for so long was stopped itself: it hears first what others
/// have to say.
constexpr double kWasStopped = 1.5;
constexpr auto kHearFirst = milliseconds(1000);
/// How long a rank with an alarm waits for the hub before it takes over, and for any report.
constexpr auto kAlarmHeard = milliseconds(1000);
constexpr auto kAnyReport = milliseconds(3000);
constexpr auto kFarewell = milliseconds(200);

}  // namespace

void SideChannel::Impl::open(std::span<const Address> all) {
  links_.open(rank_, all);
  asio::post(io_, [this] {
    if (is_hub()) {
      connect_to_all();
    }
    tick();
  });
  // Signals are for the rank's own thread.
  sigset_t all_signals, before;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void SideChannel::Impl::run() {
  for (;;) {
    try {
      io_.run();
      return;
    } catch (const std::exception&) {  // of one message: the channel goes on without it
    }
  }
}

void SideChannel::Impl::connect_to_all() {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_ && !peer(rank).died && !peer(rank).left) {
      peer(rank).link = links_.connect(rank);
    }
  }
}

void SideChannel::Impl::connected(const SideLinkPtr& link) {
  if (over()) {
    send_verdict(link);
  }
}

void SideChannel::Impl::greeted(const SideLinkPtr& link) {
  if (is_hub() && rank_ < link->rank() && !hub_is_lost_) {
    return;  // it will hear that this rank is the hub
  }
  hub_ = link->rank();
  hub_is_lost_ = false;
  conclusion_.reset();
  peer(hub_).link = link;
  peer(hub_).heard = Clock::now();
  if (over()) {
    send_verdict(link);
    return;
  }
  send_status();
  if (pending_) {
    alarm(*pending_);
  }
}

void SideChannel::Impl::received(const SideLinkPtr& link, Frame frame, const std::string& body) {
  Peer& from = peer(link->rank());
  from.heard = Clock::now();
  switch (frame) {
    case Frame::kHello:
      break;
    case Frame::kAsk:
      send_status();
      break;
    case Frame::kStatus:
      from.status = decode(body);
      from.known = true;
      from.answered = true;
      look_at_conclusion();
      break;
    case Frame::kAlarm: {
      const Alarm told = decode_alarm(body);
      ensure(std::all_of(told.sides.begin(), told.sides.end(),
                         [this](int side) { return side >= 0 && side < size_; }),
             "an alarm names a rank that is none");
      alarm(told);
      break;
    }
    case Frame::kOver:
      ensure(!body.empty(), "a report is cut short");
      learn({body.substr(1), body[0] != 0});
      if (is_hub()) {
        send_to_all(Frame::kOver, body);
      }
      break;
    case Frame::kBye:
      from.left = true;
      break;
  }
}

void SideChannel::Impl::lost(const SideLinkPtr& link, bool gone) {
  const int rank = link->rank();
  if (quiet() || over() || peer(rank).link != link) {
    return;
  }
  peer(rank).link.reset();
  if (peer(rank).left || !gone) {
    return;
  }
  if (is_hub()) {
    died(rank);
  } else if (rank == hub_) {
    peer(hub_).died = true;
    hub_lost();
  }
}

void SideChannel::Impl::sent() {
  if (leaving_ && all_sent()) {
    io_.stop();
  }
}

void SideChannel::Impl::send_status() {
  if (!is_hub()) {
    links_.send(peer(hub_).link, Frame::kStatus, encode(recorder_.status()));
  }
}

void SideChannel::Impl::send_to_all(Frame frame, const std::string& body) {
  for (Peer& to : peers_) {
    links_.send(to.link, frame, body);
  }
}

void SideChannel::Impl::tick() {
  timer_.expires_after(kTick);  // first: whatever this one ends in, there is a next
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error && !leaving_) {
      tick();
    }
  });
  notice_own_stop();
  last_tick_ = Clock::now();
  if (!over() && !quiet()) {
    if (is_hub()) {
      send_to_all(Frame::kStatus, encode(recorder_.status()));
      judge();
    } else {
      send_status();
      watch_hub();
    }
  }
}

void SideChannel::Impl::notice_own_stop() {
  if (seconds_since(last_tick_) > kWasStopped) {
    hear_until_ = Clock::now() + kHearFirst;
  }
}

void SideChannel::Impl::watch_hub() {
  if (Clock::now() < hear_until_) {
    return;
  }
  const bool silent = seconds_since(peer(hub_).heard) > kHubSilence;
  if (hub_is_lost_) {
    int before = 0;  // ranks that come before this one in line
    for (int rank = 0; rank < rank_; ++rank) {
      before += rank != hub_ && !peer(rank).died ? 1 : 0;
    }
    if (Clock::now() - hub_lost_at_ >= before * kNextInLine) {
      take_over();
    }
    return;
  }
  const RankStatus own = recorder_.status();
  const CallRecord* call = own.under_way();
  const bool stalled = call != nullptr && own.now - call->entered > timeout_s_;
  const bool unheard = pending_ && Clock::now() - pending_since_ > kAlarmHeard;
  // All calls are made, and the hub's farewell does not come.
  const bool forsaken = own.ended && seconds_since(peer(hub_).heard) > timeout_s_;
  if ((silent && (stalled || pending_)) || unheard || forsaken) {
    hub_lost();
  }
}

void SideChannel::Impl::hub_lost() {
  hub_is_lost_ = true;
  hub_lost_at_ = Clock::now();
  watch_hub();
  if (hub_is_lost_) {  // another is before this rank in line: look again soon
    timer_.expires_after(kNextInLine);
    timer_.async_wait([this](const asio::error_code& error) {
      if (!error && !leaving_) {
        tick();
      }
    });
  }
}

void SideChannel::Impl::take_over() {
  const int before = hub_;
  const bool hub_died = peer(before).died;
  hub_is_lost_ = false;
  hub_ = rank_;
  connect_to_all();  // a hub that was stopped hears of it when it wakes
  if (pending_) {
    alarm(*pending_);
  } else if (hub_died) {
    died(before);
  }
}

void SideChannel::Impl::learn(const Verdict& verdict) {
  if (over()) {
    return;
  }
  int code = 0;
  {
    const std::lock_guard lock(mutex_);
    report_ = verdict.report;
    broken_.store(verdict.broken, std::memory_order_release);
    over_.store(true, std::memory_order_release);
    code = exit_code_;
  }
  told_.notify_all();
  if (options_.ends_process) {
    exit_timer_.expires_after(verdict.broken ? kPassedOn : kLeave);
    exit_timer_.async_wait([code](const asio::error_code& error) {
      if (!error) {
        _exit(code);
      }
    });
  }
}

std::string SideChannel::Impl::raise(const Alarm& own) {
  {
    const std::lock_guard lock(mutex_);
    if (!report_.empty()) {
      return report_;
    }
    exit_code_ = static_cast<int>(own.code);
  }
  if (size_ == 1) {
    end_job({own.text});
    return own.text;
  }
  asio::post(io_, [this, own] {
    if (!pending_ && !over()) {
      pending_ = own;
      pending_since_ = Clock::now();
      alarm(own);
    }
  });
  std::unique_lock lock(mutex_);
  if (told_.wait_for(lock, kAnyReport, [&] { return !report_.empty(); })) {
    return report_;
  }
  lock.unlock();
  asio::post(io_, [this, own] { end_job({own.text, true}); });
  lock.lock();
  told_.wait_for(lock, kFarewell, [&] { return !report_.empty(); });
  return own.text;
}

void SideChannel::Impl::leave() {
  leaving_ = true;
  links_.close();
  timer_.cancel();
  conclusion_timer_.cancel();
  send_to_all(Frame::kBye, "");
  // What is still to be written gets a moment; reads end with it.
  exit_timer_.expires_after(kFarewell);
  exit_timer_.async_wait([this](const asio::error_code&) { io_.stop(); });
  if (all_sent()) {
    io_.stop();
  }
}

bool SideChannel::Impl::all_sent() const {
  return std::none_of(peers_.begin(), peers_.end(),
                      [](const Peer& of) { return of.link != nullptr && of.link->writing(); });
}

void SideChannel::Impl::check() {
  if (!over()) {
    return;
  }
  if (broken() && options_.ends_process) {
    std::cout.flush();
    for (;;) {  // until the channel's thread, which may still have the report to pass on, ends it
      std::this_thread::sleep_for(kLeave);
    }
  }
  throw PeerLost(report());
}

SideChannel::SideChannel(FlightRecorder& recorder, int rank, int size, const WorldOptions& options)
    : impl_(std::make_unique<Impl>(recorder, rank, size, options)) {}
SideChannel::~SideChannel() = default;
SideChannel::Address SideChannel::address() const { return impl_->address(); }
void SideChannel::open(std::span<const Address> all) { impl_->open(all); }
void SideChannel::set_timeout(double seconds) { impl_->set_timeout(seconds); }
bool SideChannel::over() const noexcept { return impl_->over(); }
void SideChannel::check() { impl_->check(); }
bool SideChannel::broken() const noexcept { return impl_->broken(); }
std::string SideChannel::report() const { return impl_->report(); }
std::string SideChannel::raise(const Alarm& alarm) { return impl_->raise(alarm); }
void SideChannel::close() { impl_->close(); }

}  // namespace tandem
