// What `report` makes of a run directory: reading what may be missing or half-written, and making
// long columns small. The page as a whole is read by report_page.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/train/process.h"
#include "tools/report/axis.h"
#include "tools/report/html.h"
#include "tools/report/line_chart.h"
#include "tools/report/run_data.h"
#include "tools/report/series.h"
#include "tools/report/summary.h"

namespace tandem::report {
namespace {

using test::ScratchFolder;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string step_line(int step, double loss) {
  return "{\"step\": " + std::to_string(step) + ", \"loss\": " + std::to_string(loss) +
         ", \"grad_norm\": null, \"step_ms\": 500.0}\n";
}

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> texts;
  for (const Tick& tick : axis.ticks()) {
    texts.push_back(tick.label);
  }
  return texts;
}

TEST(RunData, LeavesOutALineThatIsBeingWritten) {
  const ScratchFolder folder;
  folder.write("metrics.jsonl", step_line(1, 5.0) + step_line(2, 4.0) + R"({"step": 3, "lo)");
  const RunData run = read_run(folder.path());
  EXPECT_THAT(run.column("step"), ElementsAre(1, 2));
  EXPECT_THAT(run.column("loss"), ElementsAre(5, 4));
  EXPECT_THAT(run.column("elapsed_s"), ElementsAre(0.5, 1.0));
  EXPECT_TRUE(std::isnan(run.column("grad_norm")[0]));
  EXPECT_THAT(run.notes, ElementsAre("There is no config.yaml."));
}

TEST(RunData, KeepsWarningsApartFromSteps) {
  const ScratchFolder folder;
  folder.write("metrics.jsonl", step_line(1, 5.0) +
                                    R"({"step": 1, "warning": "low_roof", "text": "far <below>"})" +
                                    "\n" + step_line(2, 4.0));
  const RunData run = read_run(folder.path());
  EXPECT_THAT(run.column("loss"), ElementsAre(5, 4));
  ASSERT_THAT(run.warnings, SizeIs(1));
  EXPECT_EQ(run.warnings[0].step, 1);
  EXPECT_EQ(run.warnings[0].kind, "low_roof");
  EXPECT_EQ(run.warnings[0].text, "far <below>");
}

TEST(RunData, SaysHowManyLinesCannotBeRead) {
  const ScratchFolder folder;
  folder.write("config.yaml", "name: a\n");
  folder.write("metrics.jsonl", step_line(1, 5.0) + "}{\n[1]\n" + step_line(2, 4.0));
  const RunData run = read_run(folder.path());
  EXPECT_THAT(run.column("step"), ElementsAre(1, 2));
  EXPECT_THAT(run.notes, ElementsAre("2 lines of metrics.jsonl cannot be read and are left out."));
}

TEST(RunData, TakesTheNewerOfAStepThatWasTakenTwice) {
  const ScratchFolder folder;
  const std::string evaluation = R"({"step": 2, "valid_loss": 9.0})"
                                 "\n";
  folder.write("metrics.jsonl", step_line(1, 5.0) + step_line(2, 4.0) + evaluation +
                                    step_line(3, 3.0) + step_line(2, 4.5) +
                                    R"({"step": 2, "valid_loss": 8.0})"
                                    "\n");
  const RunData run = read_run(folder.path());
  EXPECT_THAT(run.column("step"), ElementsAre(1, 2));
  EXPECT_THAT(run.column("loss"), ElementsAre(5, 4.5));
  EXPECT_THAT(run.column("elapsed_s"), ElementsAre(0.5, 1.0));
  EXPECT_THAT(run.evaluation_losses, ElementsAre(8));
}

TEST(RunData, IsNotReadFromWhatIsNoRunDirectory) {
  const ScratchFolder folder;
  EXPECT_THROW(read_run(folder.path()), ConfigError);
  EXPECT_THROW(read_run(folder.path() / "nothing"), ConfigError);
}

TEST(RunData, NotesFilesThatAreNoJson) {
  const ScratchFolder folder;
  folder.write("config.yaml", "a: {b: [1, 2], c: null}\n");
  folder.write("run.json", "[");
  folder.write("traffic.json", "{\"labels\": 3}");
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.setting("a.b"), "[1, 2]");
  EXPECT_THAT(run.notes, ElementsAre(HasSubstr("no metrics.jsonl"), "run.json cannot be read.",
                                     "traffic.json cannot be read."));
}

TEST(RunData, TellsRunsOfOneNameApart) {
  std::vector<RunData> runs(3);
  runs[0].name = runs[2].name = "a";
  runs[1].name = "b";
  runs[0].directory = "x/a";
  runs[2].directory = "y/a";
  tell_apart(runs);
  EXPECT_EQ(runs[0].name, "x/a");
  EXPECT_EQ(runs[1].name, "b");
  EXPECT_EQ(runs[2].name, "y/a");
}

TEST(Series, KeepsEverySpikeAndHoleOfALongColumn) {
  std::vector<double> values(100000, 1.0);
  values[777] = 50.0;
  values[50001] = -3.0;
  values[90000] = kNaN;
  const std::vector<std::size_t> places = extreme_places(values, 1000);
  EXPECT_LE(places.size(), 1500U);
  for (const std::size_t place : {777U, 50001U, 90000U}) {
    EXPECT_THAT(places, ::testing::Contains(place));
  }
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
  EXPECT_THAT(extreme_places(std::vector<double>{1, kNaN, 3}, 1000), ElementsAre(0, 1, 2));
}

TEST(Series, SmoothsAroundEachValueAndOverHoles) {
  const std::vector<double> line = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_THAT(smoothed(line, 3), ElementsAre(1, 2, 3, 4, 5, 6, 6.5));
  EXPECT_THAT(smoothed(std::vector<double>{1, kNaN, 3}, 3), ElementsAre(1, 2, 3));
  EXPECT_TRUE(std::isnan(smoothed(std::vector<double>{kNaN}, 1)[0]));
  EXPECT_EQ(smoothing_window(49), 1U);
  EXPECT_EQ(smoothing_window(100000), 2001U);
}

TEST(Series, SpreadsItsPlacesFromFirstToLast) {
  EXPECT_THAT(spread_places(100, 4), ElementsAre(0, 33, 66, 99));
  EXPECT_THAT(spread_places(2, 4), ElementsAre(0, 1));
  EXPECT_THAT(spread_places(0, 4), IsEmpty());
}

TEST(Series, FindsQuantilesOfWhatIsThere) {
  EXPECT_EQ(median(std::vector<double>{3, kNaN, 1, 2}), 2);
  EXPECT_EQ(median(std::vector<double>{4, 1, kNaN, 3, 2}), 2.5);
  EXPECT_TRUE(std::isnan(median(std::vector<double>{kNaN})));
  EXPECT_DOUBLE_EQ(quantile(std::vector<double>{10, 0, 30, 20}, 0.9), 27);
  EXPECT_EQ(quantile(std::vector<double>{2, 1, 3}, 1.0), 3);
  EXPECT_EQ(last_value(std::vector<double>{3, 4, kNaN}), 4);
}

TEST(Axis, HasRoundTicks) {
  EXPECT_THAT(labels(Axis(2.03, 5.54, Axis::Scale::kLinear, true)),
              ElementsAre("2.0", "2.5", "3.0", "3.5", "4.0", "4.5", "5.0", "5.5", "6.0"));
  EXPECT_THAT(labels(Axis(0.01, 1000, Axis::Scale::kLog, true)),
              ElementsAre("0.01", "0.1", "1", "10", "100", "1k"));
  EXPECT_THAT(labels(Axis::of_steps(1, 3)), ElementsAre("1", "2", "3"));
}

TEST(Axis, WidensARangeWithoutLength) {
  EXPECT_EQ(Axis(4, 4, Axis::Scale::kLinear, true).position(4), 0.5);
  EXPECT_EQ(Axis(0, 0, Axis::Scale::kLinear, true).position(0), 0);
  EXPECT_EQ(Axis(4, 4, Axis::Scale::kLog, true).position(4), 0.5);
  EXPECT_EQ(Axis::of_steps(7, 7).position(7), 0.5);
}

TEST(Axis, HasNoPlaceForZeroWhereItIsLogarithmic) {
  EXPECT_TRUE(std::isnan(Axis(1, 10, Axis::Scale::kLog, true).position(0)));
}

TEST(ReportText, WritesNumbersAsPeopleReadThem) {
  EXPECT_EQ(value_text(1234567), "1,234,567");
  EXPECT_EQ(value_text(2.3456789), "2.346");
  EXPECT_EQ(value_text(-0.00001), "-1.000e-5");
  EXPECT_EQ(value_text(kNaN), "–");
  EXPECT_EQ(count_text(150000), "150,000");
  EXPECT_EQ(count_text(2.5), "2.50");
  EXPECT_EQ(tick_text(2500, 500), "2,500");
  EXPECT_EQ(tick_text(1.5e6, 5e5), "1.5M");
  EXPECT_EQ(tick_text(5e-5, 5e-5), "5e-5");
  EXPECT_EQ(bytes_figure(1536), "1.5 KiB");
}

TEST(ReportText, IsSafeInHtml) {
  EXPECT_EQ(escape("<a b=\"c\">&"), "&lt;a b=&quot;c&quot;&gt;&amp;");
  EXPECT_EQ(escape("ä\xFF"), "ä\xEF\xBF\xBD");
}

TEST(LineChart, SaysWhatItLeavesOut) {
  Curve curve{.name = "", .x = {}, .y = {}};
  for (int i = 1; i <= 200; ++i) {
    curve.x.push_back(i);
    curve.y.push_back(i == 1 ? 5000.0 : i == 7 ? kNaN : 100.0 + i % 3);
  }
  const DrawnChart chart = draw(
      {.id = "a", .title = "Time", .from_zero = true, .cuts_spikes = true, .curves = {curve}}, 1);
  EXPECT_THAT(chart.html, HasSubstr("1 value above the axis"));
  EXPECT_THAT(chart.html, HasSubstr("1 step without a value"));
}

TEST(LineChart, IsEmptyWithoutAValue) {
  EXPECT_THAT(
      draw({.id = "a", .title = "A", .curves = {{.name = "", .x = {1}, .y = {kNaN}}}}, 1).html,
      IsEmpty());
}

TEST(Figures, LeaveTheFirstStepOutOfSpeeds) {
  const ScratchFolder folder;
  folder.write("metrics.jsonl", R"({"step": 1, "step_ms": 9000})"
                                "\n"
                                R"({"step": 2, "step_ms": 10})"
                                "\n");
  EXPECT_EQ(figures_of(read_run(folder.path())).step_ms, 10);
}

}  // namespace
}  // namespace tandem::report
