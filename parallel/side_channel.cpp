#include "parallel/side_channel.h"

#include <asio.hpp>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <functional>
#include <iostream>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "parallel/diagnosis.h"

namespace tandem {

namespace {

using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kTick = milliseconds(250);
/// A hub that was not heard of for so long does not hear either.
constexpr double kHubSilence = 1.0;
/// How long a hub waits for the ranks' answers before it reports without them.
constexpr auto kAnswers = milliseconds(300);
constexpr auto kAskAgain = milliseconds(50);
/// After a death, for its peers to come to where they miss it.
constexpr auto kMissed = milliseconds(400);
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
constexpr std::uint32_t kLongestFrame = 4u << 20;

enum class Frame : std::uint8_t { kHello, kAsk, kStatus, kAlarm, kOver, kBye };

struct Header {
  std::uint32_t bytes = 0;
  Frame frame = Frame::kBye;
};
struct Hello {
  std::uint64_t key = 0;
  std::int32_t rank = 0;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <typename T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

/// All but the few members under `mutex_` is the thread's own.
class SideChannel::Impl {
 public:
  Impl(FlightRecorder& recorder, int rank, int size, const WorldOptions& options)
      : recorder_(recorder),
        rank_(rank),
        size_(size),
        options_(options),
        timeout_s_(options.timeout_s),
        acceptor_(io_, tcp::endpoint(tcp::v4(), 0)),
        timer_(io_),
        conclusion_timer_(io_),
        exit_timer_(io_),
        peers_(static_cast<std::size_t>(size)) {}

  ~Impl() {
    asio::post(io_, [this] { leave(); });
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  Address address() const;
  void open(std::span<const Address> all);
  void set_timeout(double seconds) { timeout_s_ = seconds; }
  bool over() const noexcept { return over_.load(std::memory_order_acquire); }
  bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  std::string report() const {
    const std::lock_guard lock(mutex_);
    return report_;
  }
  void check();
  std::string raise(const Alarm& alarm);
  void close() { closing_ = true; }

 private:
  struct Link {
    explicit Link(asio::io_context& io) : socket(io) {}
    tcp::socket socket;
    int rank = -1;       ///< known from its hello on
    bool ready = false;  ///< connected
    bool said_bye = false;
    bool broken = false;
    bool writing = false;
    Header header;
    std::string body;
    std::deque<std::string> out;
  };
  using LinkPtr = std::shared_ptr<Link>;

  struct Peer {
    LinkPtr link;  ///< of a member, to the hub; of the hub, to every other rank
    bool known = false, died = false, left = false;
    RankStatus status;
    Clock::time_point heard = Clock::now();
    bool answered = false;  ///< since the hub last asked
  };
  struct Verdict {
    std::string report;   ///< empty: nothing is wrong after all
    bool broken = false;  ///< a rank is dead or hangs
  };
  /// What the hub does once the ranks have answered.
  struct Conclusion {
    std::function<Verdict()> verdict;
    std::function<bool()> enough;  ///< no need to wait any longer
    Clock::time_point deadline;
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  bool is_hub() const { return hub_ == rank_; }
  bool quiet() const { return closing_ || leaving_; }

  void run();
  void accept();
  void connect(int rank);
  void read(const LinkPtr& link);
  void handle(const LinkPtr& link);
  void unreachable(const LinkPtr& link, const asio::error_code& error);
  void lost(const LinkPtr& link, const asio::error_code& error);
  void send(const LinkPtr& link, Frame frame, const std::string& body);
  void write(const LinkPtr& link);
  void send_status();
  void send_to_all(Frame frame, const std::string& body);

  void tick();
  void notice_own_stop();
  void watch_hub();
  void judge();
  void take_over();
  void hub_lost();
  void died(int rank);
  std::vector<RankView> views();
  Limits limits() const { return {.timeout_s = timeout_s_}; }
  void conclude(Conclusion conclusion);
  void ask();
  void look_at_conclusion();
  void alarm(const Alarm& alarm);
  void end_job(const Verdict& verdict);
  void learn(const Verdict& verdict);
  void send_verdict(const LinkPtr& link) {
    send(link, Frame::kOver, std::string(1, broken() ? 1 : 0) + report());
  }
  void leave();
  bool all_sent() const;

  FlightRecorder& recorder_;
  const int rank_, size_;
  const WorldOptions options_;
  std::atomic<double> timeout_s_;
  std::atomic<bool> closing_{false}, over_{false}, broken_{false};
  mutable std::mutex mutex_;
  std::condition_variable told_;
  std::string report_;
  int exit_code_ = static_cast<int>(ExitCode::kPeer);

  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer timer_, conclusion_timer_, exit_timer_;
  std::vector<Address> addresses_;
  std::vector<Peer> peers_;
  std::vector<LinkPtr> strangers_;  ///< connected, and have not said hello
  int hub_ = 0;
  bool hub_is_lost_ = false;
  Clock::time_point hub_lost_at_{};
  std::optional<Alarm> pending_;  ///< this rank's alarm, until there is a report
  Clock::time_point pending_since_{};
  std::optional<Conclusion> conclusion_;
  std::optional<Finding> suspicion_;
  Clock::time_point last_tick_ = Clock::now(), hear_until_{};
  bool warned_ = false;
  bool leaving_ = false;
  std::uint64_t own_key_ = std::random_device{}() | std::uint64_t{std::random_device{}()} << 32;
  std::thread thread_;
};

SideChannel::Address SideChannel::Impl::address() const {
  Address address;
  gethostname(address.host.data(), address.host.size() - 1);
  address.port = acceptor_.local_endpoint().port();
  address.key = own_key_;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) == 0) {
    std::size_t found = 0;
    for (const ifaddrs* at = interfaces; at != nullptr && found < address.ipv4.size();
         at = at->ifa_next) {
      if (at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET) {
        sockaddr_in internet{};
        std::memcpy(&internet, at->ifa_addr, sizeof internet);
        const std::uint32_t ip = ntohl(internet.sin_addr.s_addr);
        if (ip >> 24 != 127) {
          address.ipv4[found++] = ip;
        }
      }
    }
    freeifaddrs(interfaces);
  }
  return address;
}

void SideChannel::Impl::open(std::span<const Address> all) {
  addresses_.assign(all.begin(), all.end());
  asio::post(io_, [this] {
    accept();
    if (is_hub()) {
      for (int rank = 0; rank < size_; ++rank) {
        connect(rank);
      }
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

void SideChannel::Impl::accept() {
  auto link = std::make_shared<Link>(io_);
  acceptor_.async_accept(link->socket, [this, link](const asio::error_code& error) {
    if (error || leaving_) {
      return;
    }
    link->ready = true;
    strangers_.push_back(link);
    read(link);
    accept();
  });
}

void SideChannel::Impl::connect(int rank) {
  if (rank == rank_ || peer(rank).died || peer(rank).left) {
    return;
  }
  const Address& to = addresses_[static_cast<std::size_t>(rank)];
  const Address& own = addresses_[static_cast<std::size_t>(rank_)];
  std::vector<tcp::endpoint> endpoints;
  if (to.host == own.host) {
    endpoints.emplace_back(asio::ip::address_v4::loopback(), to.port);
  }
  for (const std::uint32_t ip : to.ipv4) {
    if (ip != 0) {
      endpoints.emplace_back(asio::ip::address_v4(ip), to.port);
    }
  }
  auto link = std::make_shared<Link>(io_);
  link->rank = rank;
  peer(rank).link = link;
  asio::async_connect(link->socket, endpoints,
                      [this, link](const asio::error_code& error, const tcp::endpoint&) {
                        if (leaving_) {
                          return;
                        }
                        if (error) {
                          unreachable(link, error);
                          return;
                        }
                        link->ready = true;
                        send(link, Frame::kHello, bytes_of(Hello{addresses_[0].key, rank_}));
                        if (over()) {
                          send_verdict(link);
                        }
                        read(link);
                      });
}

void SideChannel::Impl::read(const LinkPtr& link) {
  asio::async_read(link->socket, asio::buffer(&link->header, sizeof link->header),
                   [this, link](const asio::error_code& error, std::size_t) {
                     if (error || link->header.bytes > kLongestFrame ||
                         (link->rank < 0 && link->header.bytes != sizeof(Hello))) {
                       lost(link, error);
                       return;
                     }
                     link->body.resize(link->header.bytes);
                     asio::async_read(link->socket, asio::buffer(link->body),
                                      [this, link](const asio::error_code& failed, std::size_t) {
                                        if (failed) {
                                          lost(link, failed);
                                          return;
                                        }
                                        handle(link);
                                        if (!link->broken) {
                                          read(link);
                                        }
                                      });
                   });
}

void SideChannel::Impl::handle(const LinkPtr& link) {
  if (link->rank < 0) {
    Hello hello;
    std::memcpy(&hello, link->body.data(), sizeof hello);
    if (link->header.frame != Frame::kHello || hello.key != addresses_[0].key || hello.rank < 0 ||
        hello.rank >= size_ || hello.rank == rank_) {
      lost(link, {});
      return;
    }
    std::erase(strangers_, link);
    link->rank = hello.rank;
    if (is_hub() && rank_ < hello.rank &&
        !hub_is_lost_) {  // it will hear that this rank is the hub
      strangers_.push_back(link);
      return;
    }
    hub_ = hello.rank;
    hub_is_lost_ = false;
    conclusion_.reset();
    peer(hub_).link = link;
    peer(hub_).heard = Clock::now();
    if (over()) {
      send_verdict(link);
    } else {
      send_status();
      if (pending_) {
        alarm(*pending_);
      }
    }
    return;
  }
  Peer& from = peer(link->rank);
  from.heard = Clock::now();
  switch (link->header.frame) {
    case Frame::kHello:
      break;
    case Frame::kAsk:
      send_status();
      break;
    case Frame::kStatus:
      from.status = decode(link->body);
      from.known = true;
      from.answered = true;
      look_at_conclusion();
      break;
    case Frame::kAlarm: {
      Alarm alarm_of_peer;
      std::size_t sides = 0;
      std::memcpy(&sides, link->body.data(), sizeof sides);
      ensure(sides <= static_cast<std::size_t>(size_), "an alarm is cut short");
      alarm_of_peer.sides.resize(sides);
      std::memcpy(alarm_of_peer.sides.data(), link->body.data() + sizeof sides,
                  sides * sizeof(int));
      alarm_of_peer.text = link->body.substr(sizeof sides + sides * sizeof(int));
      alarm(alarm_of_peer);
      break;
    }
    case Frame::kOver:
      ensure(!link->body.empty(), "a report is cut short");
      learn({link->body.substr(1), link->body[0] != 0});
      if (is_hub()) {
        send_to_all(Frame::kOver, link->body);
      }
      break;
    case Frame::kBye:
      link->said_bye = true;
      from.left = true;
      break;
  }
}

void SideChannel::Impl::unreachable(const LinkPtr& link, const asio::error_code& error) {
  const Address& to = addresses_[static_cast<std::size_t>(link->rank)];
  const bool same_host = to.host == addresses_[static_cast<std::size_t>(rank_)].host;
  if (same_host && error == asio::error::connection_refused) {  // it listened once
    lost(link, error);
  } else if (peer(link->rank).link == link) {  // a network that lets nothing through
    peer(link->rank).link.reset();
  }
}

void SideChannel::Impl::lost(const LinkPtr& link, const asio::error_code& error) {
  if (link->broken) {
    return;
  }
  link->broken = true;
  asio::error_code ignored;
  link->socket.close(ignored);
  std::erase(strangers_, link);
  if (link->rank < 0 || quiet() || over() || peer(link->rank).link != link) {
    return;
  }
  peer(link->rank).link.reset();
  // What the peer's kernel says of a process that is gone, not what a network says of a host.
  const bool gone = error == asio::error::eof || error == asio::error::connection_reset ||
                    error == asio::error::broken_pipe || error == asio::error::connection_refused;
  if (link->said_bye || !gone) {
    return;
  }
  if (is_hub()) {
    died(link->rank);
  } else if (link->rank == hub_) {
    peer(hub_).died = true;
    hub_lost();
  }
}

void SideChannel::Impl::send(const LinkPtr& link, Frame frame, const std::string& body) {
  if (link == nullptr || link->broken || !link->ready) {
    return;
  }
  const Header header{static_cast<std::uint32_t>(body.size()), frame};
  link->out.push_back(bytes_of(header) + body);
  if (!link->writing) {
    write(link);
  }
}

void SideChannel::Impl::write(const LinkPtr& link) {
  link->writing = true;
  asio::async_write(link->socket, asio::buffer(link->out.front()),
                    [this, link](const asio::error_code& error, std::size_t) {
                      link->writing = false;
                      link->out.pop_front();
                      if (error) {
                        lost(link, error);
                      } else if (!link->out.empty()) {
                        write(link);
                      } else if (leaving_ && all_sent()) {
                        io_.stop();
                      }
                    });
}

void SideChannel::Impl::send_status() {
  if (!is_hub()) {
    send(peer(hub_).link, Frame::kStatus, encode(recorder_.status()));
  }
}

void SideChannel::Impl::send_to_all(Frame frame, const std::string& body) {
  for (Peer& to : peers_) {
    send(to.link, frame, body);
  }
}

void SideChannel::Impl::tick() {
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
  timer_.expires_after(kTick);
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error && !leaving_) {
      tick();
    }
  });
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
  if ((silent && (stalled || pending_)) || unheard) {
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
  for (int rank = 0; rank < size_; ++rank) {
    connect(rank);  // a hub that was stopped hears of it when it wakes
  }
  if (pending_) {
    alarm(*pending_);
  } else if (hub_died) {
    died(before);
  }
}

std::vector<RankView> SideChannel::Impl::views() {
  std::vector<RankView> views;
  for (int rank = 0; rank < size_; ++rank) {
    const Peer& of = peer(rank);
    if (rank == rank_) {
      views.push_back({.status = recorder_.status(), .known = true});
    } else {
      views.push_back({.status = of.status,
                       .known = of.known,
                       .died = of.died,
                       .silent_s = seconds_since(of.heard)});
    }
  }
  return views;
}

void SideChannel::Impl::judge() {
  if (conclusion_ || Clock::now() < hear_until_) {
    return;
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (peer(rank).died) {
      died(rank);
      return;
    }
  }
  auto finding = diagnose(views(), limits());
  if (finding && finding->kind == Finding::Kind::kSlow) {
    if (!warned_ && options_.warn) {
      options_.warn(finding->report);
    }
    warned_ = true;
    return;
  }
  if (!finding) {
    return;
  }
  suspicion_ = std::move(finding);
  conclude({.verdict = [this]() -> Verdict {
              const auto again = diagnose(views(), limits());
              if (!again || again->kind != suspicion_->kind ||
                  again->fingerprint != suspicion_->fingerprint) {
                return {};
              }
              return {again->report, again->silent};
            },
            .enough = [] { return true; },
            .deadline = Clock::now() + kAnswers});
}

void SideChannel::Impl::died(int rank) {
  peer(rank).died = true;
  conclude({.verdict =
                [this, rank] {
                  return Verdict{report_of_death(views(), rank, limits()), true};
                },
            .enough =
                [this, rank] {
                  const auto all = views();
                  return std::any_of(all.begin(), all.end(), [&](const RankView& view) {
                    const CallRecord* call = view.status.under_way();
                    if (call == nullptr || view.died) {
                      return false;
                    }
                    const auto& members =
                        view.status.groups[static_cast<std::size_t>(call->group)].ranks;
                    return std::find(members.begin(), members.end(), rank) != members.end();
                  });
                },
            .deadline = Clock::now() + kMissed});
}

void SideChannel::Impl::alarm(const Alarm& alarm) {
  if (over()) {
    return;
  }
  if (!is_hub()) {
    std::string body = bytes_of(alarm.sides.size());
    for (const int side : alarm.sides) {
      body += bytes_of(side);
    }
    send(peer(hub_).link, Frame::kAlarm, body + alarm.text);
    return;
  }
  if (alarm.sides.empty()) {
    end_job({alarm.text});
    return;
  }
  conclude({.verdict = [this, alarm] { return Verdict{report_of(alarm, views())}; },
            .enough = [] { return true; },
            .deadline = Clock::now() + kAnswers});
}

void SideChannel::Impl::conclude(Conclusion conclusion) {
  notice_own_stop();
  if (over() || conclusion_ || Clock::now() < hear_until_) {
    return;
  }
  conclusion_ = std::move(conclusion);
  for (Peer& of : peers_) {
    of.answered = false;
  }
  ask();
  look_at_conclusion();
}

void SideChannel::Impl::ask() {
  send_to_all(Frame::kAsk, "");
  conclusion_timer_.expires_after(kAskAgain);
  conclusion_timer_.async_wait([this](const asio::error_code& error) {
    if (error || leaving_ || !conclusion_) {
      return;
    }
    look_at_conclusion();
    if (conclusion_) {
      ask();
    }
  });
}

void SideChannel::Impl::look_at_conclusion() {
  if (!conclusion_) {
    return;
  }
  const bool all_answered = std::all_of(peers_.begin(), peers_.end(), [&](const Peer& of) {
    return of.answered || of.link == nullptr || of.died || of.left;
  });
  const bool overdue = Clock::now() >= conclusion_->deadline;
  if (!overdue && !(all_answered && conclusion_->enough())) {
    return;
  }
  const Conclusion done = std::move(*conclusion_);
  conclusion_.reset();
  if (const Verdict verdict = done.verdict(); !verdict.report.empty()) {
    end_job(verdict);
  }
}

void SideChannel::Impl::end_job(const Verdict& verdict) {
  if (over()) {
    return;
  }
  if (options_.report) {
    options_.report(verdict.report);
  }
  learn(verdict);
  for (const Peer& of : peers_) {
    send_verdict(of.link);
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
  asio::error_code ignored;
  acceptor_.close(ignored);
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
  return std::none_of(peers_.begin(), peers_.end(), [](const Peer& of) {
    return of.link != nullptr && of.link->writing && !of.link->broken;
  });
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
