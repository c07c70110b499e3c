// What is said of a job whose ranks call different things, or wait for one that does not come.
#include "parallel/diagnosis.h"

#include <gmock/gmock.h>

#include <deque>
#include <stdexcept>

namespace tandem::test {

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Ranks whose calls a test makes by hand. Time stands still but for `later`.
class Job {
 public:
  explicit Job(int ranks, std::vector<std::pair<std::string, std::vector<int>>> groups) {
    for (int rank = 0; rank < ranks; ++rank) {
      recorders_.emplace_back(rank);
      members_.emplace_back();
      for (const auto& [name, members] : groups) {
        if (std::find(members.begin(), members.end(), rank) != members.end()) {
          members_.back()[name] = {recorders_.back().add_group(name, members), 0};
        }
      }
    }
  }

  FlightRecorder& recorder(int rank) { return recorders_[static_cast<std::size_t>(rank)]; }
  void enter(int rank, const std::string& group, const std::string& label, std::int64_t count = 8) {
    auto& [number, calls] = members_[static_cast<std::size_t>(rank)].at(group);
    Announcement call{
        .entry = {Label(group), calls++, Collective::kAllReduce, DType::kF32, count, Label(label)},
        .shape = {count / 4, 4}};
    call.digest = digest_of(call);
    recorder(rank).enter(number, call, true);
  }
  void call(int rank, const std::string& group, const std::string& label) {
    enter(rank, group, label);
    recorder(rank).leave();
  }
  std::vector<RankView> views(double later = 0.0) {
    std::vector<RankView> views;
    for (const FlightRecorder& recorder : recorders_) {
      views.push_back({.status = recorder.status(), .known = true});
      views.back().status.now += later;
    }
    return views;
  }

 private:
  std::deque<FlightRecorder> recorders_;
  std::vector<std::map<std::string, std::pair<int, std::uint64_t>>> members_;
};

Job two_by_two() {
  return Job(4, {{"tp", {0, 1}}, {"dp", {0, 2}}, {"tp", {2, 3}}, {"dp", {1, 3}}});
}

constexpr Limits kLimits{.timeout_s = 30.0};

TEST(Diagnosis, SaysWhoHasNotComeWhereItIsAndWhoWaits) {
  Job job = two_by_two();
  for (int rank = 0; rank < 4; ++rank) {
    job.recorder(rank).set_step(7);
    job.call(rank, "tp", "layers.2.fc1 g.forward");
  }
  job.recorder(3).ranges().push("backward", "layers.2");
  job.enter(2, "tp", "layers.2.fc2 g.forward");
  job.enter(0, "dp", "gradients");
  EXPECT_FALSE(diagnose(job.views(29.0), kLimits));
  const auto finding = diagnose(job.views(31.0), kLimits);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, Finding::Kind::kStall);
  EXPECT_THAT(finding->ranks, ElementsAre(3));
  EXPECT_FALSE(finding->silent);
  EXPECT_EQ(finding->report,
            "step 7: rank 3 has not reached tp#1 all_reduce fp32 [2, 4] `layers.2.fc2 g.forward` "
            "(group {2, 3}); its last was tp#0 all_reduce fp32 [2, 4] `layers.2.fc1 g.forward`, "
            "31.0 s ago, inside `backward layers.2`\n"
            "  rank 0 waits in dp#0 all_reduce fp32 [2, 4] `gradients` (group {0, 2}) for 31.0 s\n"
            "  rank 2 waits in tp#1 all_reduce fp32 [2, 4] `layers.2.fc2 g.forward` (group {2, 3}) "
            "for 31.0 s");
}

TEST(Diagnosis, SaysOfARankWithoutHeartbeatThatItMayBeStopped) {
  Job job = two_by_two();
  job.enter(2, "tp", "a");
  job.enter(3, "tp", "a");  // and was stopped inside
  auto views = job.views(31.0);
  views[3].silent_s = 5.0;
  const auto finding = diagnose(views, kLimits);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->ranks, ElementsAre(3));
  EXPECT_TRUE(finding->silent);
  EXPECT_THAT(finding->report, AllOf(HasSubstr("rank 3 has reached, but does not complete, tp#0"),
                                     HasSubstr("no heartbeat for 5.0 s: stopped")));
}

TEST(Diagnosis, ShowsBothSidesOfAMismatchWithTheirLastCollectives) {
  Job job(3, {{"dp", {0, 1, 2}}});
  for (int rank = 0; rank < 3; ++rank) {
    job.call(rank, "dp", "first");
    job.enter(rank, "dp", rank == 1 ? "fc2" : "fc1");
  }
  const auto finding = diagnose(job.views(), kLimits);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, Finding::Kind::kMismatch);
  EXPECT_THAT(finding->ranks, ElementsAre(1));
  EXPECT_EQ(finding->report,
            "the ranks of group dp {0, 1, 2} do not call the same collective:\n"
            "  rank 0: dp#1 all_reduce fp32 [2, 4] `fc1`\n"
            "  rank 1: dp#1 all_reduce fp32 [2, 4] `fc2`  <- differs\n"
            "  rank 2: dp#1 all_reduce fp32 [2, 4] `fc1`\n"
            "  last collectives of rank 0:\n"
            "    dp#0 all_reduce fp32 [2, 4] `first`\n"
            "    dp#1 all_reduce fp32 [2, 4] `fc1`  <- in it\n"
            "  last collectives of rank 1:\n"
            "    dp#0 all_reduce fp32 [2, 4] `first`\n"
            "    dp#1 all_reduce fp32 [2, 4] `fc2`  <- in it");
}

/// Of groups with other members, the same number and label are another call.
TEST(Diagnosis, DoesNotCompareDifferentGroups) {
  Job job = two_by_two();
  job.enter(0, "tp", "a", 8);
  job.enter(1, "tp", "a", 8);
  job.enter(2, "tp", "b", 16);
  job.enter(3, "tp", "b", 16);
  EXPECT_FALSE(diagnose(job.views(), kLimits));
}

TEST(Diagnosis, FindsOrdersThatWaitForEachOtherAtOnce) {
  Job job = two_by_two();
  job.enter(0, "tp", "a");
  job.enter(1, "dp", "a");
  job.enter(3, "tp", "a");
  job.enter(2, "dp", "a");
  const auto first = diagnose(job.views(), kLimits);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->kind, Finding::Kind::kCircle);
  EXPECT_THAT(first->ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(first->report, HasSubstr("ranks 0, 1, 2 and 3 wait for each other in a circle"));
  EXPECT_EQ(first->fingerprint, diagnose(job.views(1.0), kLimits)->fingerprint);
  // The same picture of other calls is another circle: it may have been none.
  Job later = two_by_two();
  later.enter(0, "tp", "b");
  later.enter(1, "dp", "b");
  later.enter(3, "tp", "b");
  later.enter(2, "dp", "b");
  EXPECT_NE(first->fingerprint, diagnose(later.views(), kLimits)->fingerprint);
}

TEST(Diagnosis, FindsAWaitForARankThatHasEnded) {
  Job job = two_by_two();
  job.call(3, "tp", "a");
  job.call(2, "tp", "a");
  job.enter(2, "tp", "b");
  EXPECT_FALSE(diagnose(job.views(), kLimits));
  job.recorder(3).end();
  const auto finding = diagnose(job.views(), kLimits);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, Finding::Kind::kEnded);
  EXPECT_THAT(finding->report, HasSubstr("rank 3 ended without tp#1 all_reduce fp32 [2, 4] `b`"));
}

// Nobody is inside a collective any more, so no call is late.
TEST(Diagnosis, FindsARankWhoseFarewellDoesNotCome) {
  Job job = two_by_two();
  job.call(3, "tp", "a");
  auto silent = [&](double seconds) {
    auto views = job.views();
    views[3].silent_s = seconds;
    return views;
  };
  EXPECT_FALSE(diagnose(silent(31.0), kLimits)) << "all are busy for themselves";
  for (int rank = 0; rank < 3; ++rank) {
    job.recorder(rank).end();
  }
  EXPECT_FALSE(diagnose(silent(29.0), kLimits));
  const auto finding = diagnose(silent(31.0), kLimits);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, Finding::Kind::kStall);
  EXPECT_THAT(finding->ranks, ElementsAre(3));
  EXPECT_TRUE(finding->silent);
  EXPECT_THAT(finding->report, AllOf(HasSubstr("rank 3 has not ended as others have"),
                                     HasSubstr("no heartbeat for 31.0 s: stopped")));
  job.recorder(3).end();
  EXPECT_FALSE(diagnose(silent(31.0), kLimits)) << "it has, and leaves";
}

TEST(Diagnosis, SaysOfADeathWhoWaits) {
  Job job = two_by_two();
  job.call(3, "tp", "a");
  job.call(2, "tp", "a");
  job.enter(2, "tp", "b");
  auto views = job.views();
  views[3].died = true;
  EXPECT_THAT(report_of_death(views, 3, kLimits),
              AllOf(HasSubstr("rank 3 died: its process is gone, and is waited for in tp#1"),
                    HasSubstr("its last was tp#0"), HasSubstr("rank 2 waits in tp#1")));
}

TEST(Diagnosis, CallsACallSlowByItsOwnUsualTime) {
  Job job = two_by_two();
  for (int i = 0; i < 10; ++i) {
    job.call(0, "tp", "a");
    job.call(1, "tp", "a");
  }
  job.enter(0, "tp", "a");
  EXPECT_FALSE(diagnose(job.views(2.0), kLimits));
  const auto finding = diagnose(job.views(4.0), kLimits);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, Finding::Kind::kSlow);
  EXPECT_THAT(finding->report, HasSubstr("rank 1 has not reached tp#10"));
  // A label that is new has no usual time.
  Job fresh = two_by_two();
  fresh.enter(0, "tp", "a");
  EXPECT_FALSE(diagnose(fresh.views(4.0), kLimits));
}

TEST(FlightRecorder, ItsStatusSurvivesTheJourney) {
  Job job = two_by_two();
  for (int i = 0; i < 20; ++i) {
    job.call(0, i % 2 == 0 ? "tp" : "dp", "call " + std::to_string(i));
  }
  job.recorder(0).ranges().push("step", "");
  job.recorder(0).set_step(3);
  const RankStatus sent = job.recorder(0).status();
  const std::string bytes = encode(sent);
  const RankStatus received = decode(bytes);
  EXPECT_EQ(received.step, 3);
  EXPECT_EQ(received.inside, "step");
  ASSERT_EQ(received.last.size(), FlightRecorder::kKept);
  EXPECT_EQ(to_string(received.last.back().call), "dp#9 all_reduce fp32 [2, 4] `call 19`");
  ASSERT_EQ(received.groups.size(), 2u);
  EXPECT_TRUE(received.groups[1].same_group(sent.groups[1]));
  EXPECT_EQ(received.groups[1].calls, 10u);
  for (std::size_t cut = 0; cut < bytes.size(); cut += 7) {
    EXPECT_THROW(decode(std::span(bytes).first(cut)), std::out_of_range) << cut;
  }
}

TEST(FlightRecorder, AStatusOfOtherBytesIsRefusedOrHarmless) {
  Job job = two_by_two();
  job.call(0, "tp", "a call");
  const std::string whole = encode(job.recorder(0).status());
  int refused = 0, no_call = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = '\xff';
    try {
      std::vector<RankView> views(4);
      views[0] = {.status = decode(bytes), .known = true};
      static_cast<void>(last_collectives(views, std::vector<int>{0}));
    } catch (const std::out_of_range& error) {
      ++refused;
      no_call += std::string(error.what()).ends_with("holds a call that is none") ? 1 : 0;
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_EQ(no_call, 6) << "the lengths of two labels, and four bytes of a shape's rank";
}

TEST(Digest, DiffersInEachThingThatRanksMustAgreeOn) {
  const Announcement call{
      .entry = {Label("tp"), 4, Collective::kAllReduce, DType::kF32, 8, Label("a label")}};
  const auto changed = [&](auto&& change) {
    Announcement other = call;
    change(other);
    return digest_of(other);
  };
  const Digest digest = digest_of(call);
  EXPECT_EQ(digest, changed([](Announcement& c) { c.shape = {2, 4}; }));
  EXPECT_NE(digest, changed([](Announcement& c) { c.entry.group = Label("dp"); }));
  EXPECT_NE(digest, changed([](Announcement& c) { c.entry.sequence = 5; }));
  EXPECT_NE(digest, changed([](Announcement& c) { c.entry.op = Collective::kBroadcast; }));
  EXPECT_NE(digest, changed([](Announcement& c) { c.entry.dtype = DType::kI32; }));
  EXPECT_NE(digest, changed([](Announcement& c) { c.entry.count = 9; }));
  EXPECT_NE(digest, changed([](Announcement& c) { c.entry.label = Label("b label"); }));
  EXPECT_NE(digest, changed([](Announcement& c) { c.reduce = ReduceOp::kMax; }));
  EXPECT_NE(digest, changed([](Announcement& c) { c.root = 1; }));
  // Ranks may send each other different numbers of rows.
  const auto exchanged = [&](std::int64_t count) {
    return changed([&](Announcement& c) {
      c.entry.op = Collective::kAllToAll;
      c.entry.count = count;
    });
  };
  EXPECT_EQ(exchanged(8), exchanged(9));
}

}  // namespace

}  // namespace tandem::test
