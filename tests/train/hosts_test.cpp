// The memory that control groups leave, on made-up trees of both versions; and what is said of
// where ranks were placed.
#include "train/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/train/process.h"

namespace tandem::test {

namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

/// A file /proc/self/cgroup and a tree /sys/fs/cgroup.
class ControlGroups : public testing::Test {
 protected:
  void member_of(const std::string& lines) { folder_.write("cgroup", lines); }
  void write(const std::string& file, const std::string& text) {
    const auto path = std::filesystem::path("tree") / file;
    std::filesystem::create_directories(folder_.path() / path.parent_path());
    folder_.write(path.string(), text);
  }
  std::size_t left() const {
    return cgroup_memory(folder_.path() / "cgroup", folder_.path() / "tree");
  }

  ScratchFolder folder_;
};

TEST_F(ControlGroups, LimitNothingWhereThereAreNone) {
  EXPECT_EQ(left(), kUnlimited);
  member_of("4:memory:/job\n0::/job\n");
  EXPECT_EQ(left(), kUnlimited);
}

TEST_F(ControlGroups, LeaveWhatIsNotUsedAndNotPageCache) {
  member_of("0::/job\n");
  write("job/memory.max", "1000\n");
  write("job/memory.current", "700\n");
  write("job/memory.stat", "anon 300\ninactive_file 400\nactive_file 5\n");
  EXPECT_EQ(left(), 700u);
}

TEST_F(ControlGroups, OfAncestorsCountToo) {
  member_of("0::/slurm/job/step\n");
  write("slurm/job/step/memory.max", "max\n");
  write("slurm/job/memory.max", "1000\n");
  write("slurm/job/memory.current", "400\n");
  write("slurm/memory.max", "5000\n");
  EXPECT_EQ(left(), 600u);
}

// Inside a container the tree begins at the container's own group.
TEST_F(ControlGroups, OfAContainerAreFoundAtTheRoot) {
  member_of("0::/docker/0123\n");
  write("memory.max", "1000\n");
  write("memory.current", "1200\n");
  EXPECT_EQ(left(), 0u);
}

TEST_F(ControlGroups, OfVersion1AreThoseOfTheMemoryController) {
  member_of("5:cpu,cpuacct:/other\n4:memory:/job\n0::/\n");
  write("memory/other/memory.limit_in_bytes", "1\n");
  write("memory/job/memory.limit_in_bytes", "1000\n");
  write("memory/job/memory.usage_in_bytes", "500\n");
  write("memory/job/memory.stat", "cache 300\ntotal_inactive_file 200\n");
  EXPECT_EQ(left(), 700u);
}

/// World 8, tp 2 on two hosts; the ranks that warn.
std::vector<int> warning_ranks(const std::vector<std::string>& names) {
  std::vector<int> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    const auto warnings =
        placement_warnings({.names = names}, {.tp = 2, .dp = 4, .rank = rank}, 1, 1);
    if (!warnings.empty()) {
      EXPECT_THAT(warnings,
                  testing::ElementsAre(testing::AllOf(testing::HasSubstr("spans hosts a, b"),
                                                      testing::HasSubstr("--map-by slot"),
                                                      testing::HasSubstr("hostfile"))));
      ranks.push_back(rank);
    }
  }
  return ranks;
}

TEST(Placement, GroupsThatSpanHostsAreNamed) {  // B143
  EXPECT_THAT(warning_ranks({"a", "b", "a", "b", "a", "b", "a", "b"}),
              testing::ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(warning_ranks({"a", "a", "a", "a", "b", "b", "b", "b"}), testing::IsEmpty());
}

TEST(Placement, MoreThreadsThanCpusAreNamed) {  // B141
  const HostMap hosts{.names = {"a", "a"}};
  EXPECT_THAT(
      placement_warnings(hosts, {.tp = 2, .dp = 1, .rank = 1}, 4, 1),
      testing::ElementsAre(testing::AllOf(testing::HasSubstr("4 threads share 1 allowed CPU"),
                                          testing::HasSubstr("--bind-to none"))));
  EXPECT_THAT(placement_warnings(hosts, {.tp = 2, .dp = 1, .rank = 1}, 4, 4), testing::IsEmpty());
}

}  // namespace

}  // namespace tandem::test
