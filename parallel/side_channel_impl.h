// The side channel's thread on one rank: a member that reports to the hub and takes over when its
// turn comes (side_channel.cpp), and the hub that asks, judges and reports (side_hub.cpp).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "parallel/diagnosis.h"
#include "parallel/side_links.h"

namespace tandem {

/// All but the few members under `mutex_` is the thread's own.
class SideChannel::Impl final : private SideLinkEvents {
 public:
  Impl(FlightRecorder& recorder, int rank, int size, const WorldOptions& options)
      : recorder_(recorder),
        rank_(rank),
        size_(size),
        options_(options),
        timeout_s_(options.timeout_s),
        links_(io_, *this),
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

  Address address() const { return links_.address(); }
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
  using Clock = std::chrono::steady_clock;
  struct Peer {
    SideLinkPtr link;  ///< of a member, to the hub; of the hub, to every other rank
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
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  void greeted(const SideLinkPtr& link) override;
  void connected(const SideLinkPtr& link) override;
  void received(const SideLinkPtr& link, Frame frame, const std::string& body) override;
  void lost(const SideLinkPtr& link, bool gone) override;
  void sent() override;

  void run();
  void connect_to_all();
  void send_status();
  void send_to_all(Frame frame, const std::string& body);

  void tick();
  void notice_own_stop();
  void watch_hub();
  void take_over();
  void hub_lost();
  void learn(const Verdict& verdict);
  void send_verdict(const SideLinkPtr& link) {
    links_.send(link, Frame::kOver, std::string(1, broken() ? 1 : 0) + report());
  }
  void leave();
  bool all_sent() const;

  // Of the hub; alarm() of a member tells the hub.
  std::vector<RankView> views();
  Limits limits() const { return {.timeout_s = timeout_s_}; }
  void judge();
  void died(int rank);
  void alarm(const Alarm& alarm);
  void conclude(Conclusion conclusion);
  void ask();
  void look_at_conclusion();
  void end_job(const Verdict& verdict);

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
  SideLinks links_;
  asio::steady_timer timer_, conclusion_timer_, exit_timer_;
  std::vector<Peer> peers_;
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
  std::thread thread_;
};

}  // namespace tandem
