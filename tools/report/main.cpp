#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "core/error.h"
#include "tools/report/page.h"
#include "train/command_line.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

const ProgramDescription kDescription = {
    .name = "report",
    .purpose = "Makes one HTML page of a run, or of several compared. It loads nothing.",
    .examples = {"build/report runs/ffn_tp2_dp2",
                 "build/report runs/ffn_tp2_dp2 runs/ffn_dp4 -o layouts.html"},
    .reads_runs = true,
};

fs::path output(const CommandLine& line) {
  if (!line.output.empty()) {
    return line.output;
  }
  return line.runs.size() == 1 ? fs::path(line.runs[0]) / "report.html" : "report.html";
}

void make_report(const CommandLine& line) {
  if (line.runs.size() > report::kMostRuns) {
    throw ConfigError(fmt::format("{} run directories: a page compares up to {}", line.runs.size(),
                                  report::kMostRuns));
  }
  std::vector<report::RunData> runs;
  for (const std::string& directory : line.runs) {
    runs.push_back(report::read_run(directory));
  }
  report::tell_apart(runs);
  const std::string page = report::page(runs, line.hardware);  // an older page outlives its errors
  const fs::path file = output(line);
  std::ofstream out(file, std::ios::binary);
  out << page;
  if (!out.flush()) {
    throw ConfigError(
        fmt::format("{}: cannot be written. Name another file with -o.", file.string()));
  }
  std::cout << "wrote " << file.string() << '\n';
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  using namespace tandem;
  try {
    make_report(parse_command_line(kDescription, argc, argv));
    return 0;
  } catch (const HelpRequested& help) {
    std::cout << help.text;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "report: error: " << error.what() << '\n';
    return static_cast<int>(exit_code_of(error));
  }
}
