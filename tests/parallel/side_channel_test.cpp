// Ranks that fail, hang and die as seen by the side channel alone: no MPI, and where a rank has to
// die, one that is a child process.
#include "parallel/side_channel.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace tandem::test {

namespace {

using testing::HasSubstr;
using Address = SideChannel::Address;

constexpr int kRanks = 3;

void wait_until(const std::function<bool()>& done) {
  for (int i = 0; i < 2000 && !done(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void enter(FlightRecorder& recorder, const std::string& label) {
  Announcement call{.entry = {Label("all"), 0, Collective::kBarrier, DType::kU8, 0, Label(label)}};
  call.digest = digest_of(call);
  recorder.enter(0, call, true);
}

/// One rank; its reports are counted.
struct Member {
  Member(int rank, double timeout_s) : recorder(rank) {
    recorder.add_group("all", {0, 1, 2});
    channel = std::make_unique<SideChannel>(
        recorder, rank, kRanks,
        WorldOptions{.timeout_s = timeout_s, .report = [this](const std::string&) { ++reports; }});
  }
  std::atomic<int> reports = 0;
  FlightRecorder recorder;
  std::unique_ptr<SideChannel> channel;
};

class Channels : public testing::Test {
 protected:
  void open(double timeout_s) {
    std::vector<Address> addresses;
    for (int rank = 0; rank < kRanks; ++rank) {
      members_.push_back(std::make_unique<Member>(rank, timeout_s));
      addresses.push_back(members_.back()->channel->address());
    }
    for (const auto& member : members_) {
      member->channel->open(addresses);
    }
  }
  void expect_told(const std::string& words) {
    int reports = 0;
    for (const auto& member : members_) {
      wait_until([&] { return member->channel->over(); });
      EXPECT_THAT(member->channel->report(), HasSubstr(words));
      reports += member->reports;
    }
    EXPECT_EQ(reports, 1);
  }

  std::vector<std::unique_ptr<Member>> members_;
};

TEST_F(Channels, TellAllRanksOfTheFirstAlarmAndReportItOnce) {
  open(60.0);
  std::vector<std::thread> ranks;
  std::vector<std::string> told(kRanks);
  for (int rank = 1; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      told[static_cast<std::size_t>(rank)] =
          members_[static_cast<std::size_t>(rank)]->channel->raise(
              {"alarm of rank " + std::to_string(rank)});
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  EXPECT_THAT(told[1], HasSubstr("alarm of rank "));
  EXPECT_EQ(told[1], told[2]);
  expect_told(told[1]);
}

TEST_F(Channels, NoticeAWaitBeyondTheTimeOut) {
  open(0.3);
  enter(members_[1]->recorder, "the lost one");
  enter(members_[0]->recorder, "the lost one");
  expect_told("rank 2 has not reached all#0 barrier `the lost one`");
}

TEST_F(Channels, SayNothingOfRanksThatLeave) {
  open(60.0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (const int rank : {1, 0, 2}) {
    members_[static_cast<std::size_t>(rank)]->channel.reset();
  }
  for (const auto& member : members_) {
    EXPECT_EQ(member->reports, 0);
  }
}

/// Rank `away` is a child process, which a test may stop or kill; ranks that are threads would all
/// stop with it.
class WithAChild : public Channels {
 protected:
  void open(int away, double timeout_s) {
    ASSERT_EQ(pipe(to_parent_), 0);
    ASSERT_EQ(pipe(to_child_), 0);
    child_ = fork();
    if (child_ == 0) {
      Member member(away, timeout_s);
      std::array<Address, kRanks> all;
      const Address own = member.channel->address();
      if (write(to_parent_[1], &own, sizeof own) == sizeof own &&
          read(to_child_[0], all.data(), sizeof all) == sizeof all) {
        member.channel->open(all);
        wait_until([&] { return member.channel->over(); });
      }
      _exit(member.reports);
    }
    std::array<Address, kRanks> all;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == away) {
        ASSERT_EQ(read(to_parent_[0], &all[static_cast<std::size_t>(rank)], sizeof(Address)),
                  static_cast<ssize_t>(sizeof(Address)));
      } else {
        members_.push_back(std::make_unique<Member>(rank, timeout_s));
        all[static_cast<std::size_t>(rank)] = members_.back()->channel->address();
      }
    }
    ASSERT_EQ(write(to_child_[1], all.data(), sizeof all), static_cast<ssize_t>(sizeof all));
    for (const auto& member : members_) {
      member->channel->open(all);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(700));  // a heartbeat or two
  }
  void TearDown() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  pid_t child_ = 0;
  int to_parent_[2], to_child_[2];
};

TEST_F(WithAChild, AMemberThatDiesIsReported) {
  open(2, 60.0);
  kill(child_, SIGKILL);
  expect_told("rank 2 died: its process is gone");
}

TEST_F(WithAChild, TheNextRankTakesOverWhereTheHubDies) {
  open(0, 60.0);
  enter(members_[1]->recorder, "the lost one");
  kill(child_, SIGKILL);
  expect_told("rank 0 died: its process is gone");
  EXPECT_EQ(members_[0]->reports, 1) << "the next in line";
}

TEST_F(WithAChild, TheNextRankTakesOverWhereTheHubIsStopped) {
  open(0, 1.0);
  for (const auto& member : members_) {
    enter(member->recorder, "the lost one");
  }
  kill(child_, SIGSTOP);
  expect_told("rank 0 has not reached all#0 barrier `the lost one`");
  EXPECT_THAT(members_[0]->channel->report(), HasSubstr("no heartbeat for "));
  EXPECT_TRUE(members_[1]->channel->broken());
  // It wakes, hears that all is over, and has nothing of its own to say.
  kill(child_, SIGCONT);
  int status = 0;
  ASSERT_EQ(waitpid(child_, &status, 0), child_);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace

}  // namespace tandem::test
