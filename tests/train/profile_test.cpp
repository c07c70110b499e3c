// The ranges that a profiler sees, through a listener that NVTX loads as it loads a real one.
#include <algorithm>
#include <sstream>

#include "tests/train/small_run.h"

namespace tandem::test {

namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// Lines of the listener: "<depth spaces>domain: name (payload)".
std::vector<std::string> ranges(const std::vector<std::string>& settings) {
  const ScratchFolder folder;
  folder.write("small.yaml", kSmall);
  std::vector<std::string> command = {"/usr/bin/env",
                                      "NVTX_INJECTION64_PATH=" TANDEM_NVTX_LISTENER,
                                      "TANDEM_TEST_RANGES=" + (folder.path() / "ranges").string(),
                                      TANDEM_TRAIN,
                                      "--config",
                                      "small.yaml",
                                      "--set",
                                      "device=cpu",
                                      "--steps",
                                      "1"};
  for (const std::string& setting : settings) {
    command.insert(command.end(), {"--set", setting});
  }
  const Outcome outcome = run(command, folder);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::vector<std::string> lines;
  if (folder.has("ranges")) {
    std::istringstream text(folder.read("ranges"));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(line);
    }
  }
  return lines;
}

TEST(Profile, RangesOfAStepNestInOneDomain) {
  const auto lines = ranges({"parallel={tp: 1, dp: 1}", "train.micro_batch=8"});
  const std::vector<std::string> expected = {
      "tandem: step (1)",
      " tandem: fetch (-1)",
      " tandem: micro-batch (",
      "  tandem: upload (",
      "  tandem: forward (-1)",
      "   tandem: embed forward (",
      "   tandem: layers.0 forward (",
      "    tandem: norm (",
      "    tandem: fc1 gemm (",
      "    tandem: activation (",
      "    tandem: fc2 gemm (",
      "    tandem: bias, dropout, residual (",
      "   tandem: layers.1 forward (",
  };
  auto line = std::find(lines.begin(), lines.end(), expected.front());
  ASSERT_NE(line, lines.end());
  for (const std::string& start : expected) {
    ASSERT_NE(line, lines.end());
    EXPECT_THAT(*line, StartsWith(start));
    ++line;
  }
  for (const char* later :
       {"   tandem: head forward (", "    tandem: head gemm (", "    tandem: cross-entropy (",
        "  tandem: backward (", "    tandem: fc2 dgrad (", "    tandem: activation backward (",
        "    tandem: fc1 dgrad (", "    tandem: fc2 wgrad (", "    tandem: fc1 wgrad (",
        " tandem: optimizer ("}) {
    EXPECT_THAT(lines, Contains(StartsWith(later))) << later;
  }
  EXPECT_THAT(lines, Contains("thread rank 0"));
}

TEST(Profile, CollectivesSayWhatTheyAreForAndHowManyBytesTheyMove) {
  const auto lines = ranges({});
  // 64 rows of 16 floats.
  for (const char* collective :
       {"tandem: layers.0 g.forward all_reduce (4096)",
        "tandem: layers.1 f.backward all_reduce (4096)", "tandem: gradients head all_reduce ("}) {
    EXPECT_THAT(lines, Contains(HasSubstr(collective))) << collective;
  }
  EXPECT_THAT(lines, Contains("thread rank 3"));
}

TEST(Profile, NothingIsSaidWhereItIsOff) { EXPECT_THAT(ranges({"profile.nvtx=false"}), IsEmpty()); }

}  // namespace

}  // namespace tandem::test
