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

/// World 8, tp 2 on hosts of these names.
std::optional<std::string> told_of_hosts(const std::vector<std::string>& names) {
  return host_warning({.names = names}, {.tp = 2, .dp = 4, .rank = 3});
}

TEST(Placement, GroupsThatSpanHostsAreNamed) {  // B143
  EXPECT_THAT(
      told_of_hosts({"a", "a", "a", "b", "a", "b", "b", "b"}),
      testing::Optional(testing::AllOf(
          testing::HasSubstr("2 of 4 tensor-parallel groups span hosts, the first {2,3} a, b"),
          testing::HasSubstr("--map-by slot"), testing::HasSubstr("hostfile"))));
  EXPECT_EQ(told_of_hosts({"a", "a", "a", "a", "b", "b", "b", "b"}), std::nullopt);
}

TEST(Placement, MoreThreadsThanCpusAreNamed) {  // B141
  EXPECT_THAT(cpu_warning({{4, 1}}), testing::Optional(testing::AllOf(
                                         testing::StartsWith("4 threads share 1 allowed CPU."),
                                         testing::HasSubstr("--bind-to none"))));
  EXPECT_THAT(cpu_warning({{4, 1}, {4, 1}}),
              testing::Optional(testing::StartsWith("on every rank 4 threads share 1")));
  EXPECT_THAT(cpu_warning({{4, 4}, {4, 2}, {4, 2}}),
              testing::Optional(testing::StartsWith(
                  "on 2 of 3 ranks, first on rank 1, 4 threads share 2 allowed CPUs.")));
  EXPECT_EQ(cpu_warning({{4, 4}, {1, 2}}), std::nullopt);
}

}  // namespace

}  // namespace tandem::test
