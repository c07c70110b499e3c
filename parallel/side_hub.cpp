#include <algorithm>

#include "parallel/side_channel_impl.h"

namespace tandem {

namespace {

using std::chrono::milliseconds;

/// How long a hub waits for the ranks' answers before it reports without them.
constexpr auto kAnswers = milliseconds(300);
constexpr auto kAskAgain = milliseconds(50);
/// After a death, for its peers to come to where they miss it.
constexpr auto kMissed = milliseconds(400);

}  // namespace

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
                       .silent_s = of.left ? 0.0 : seconds_since(of.heard)});
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
    links_.send(peer(hub_).link, Frame::kAlarm, encode(alarm));
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

}  // namespace tandem
