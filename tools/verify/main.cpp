#include <fmt/format.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tools/verify/faults.h"
#include "tools/verify/grid.h"
#include "tools/verify/proof.h"
#include "tools/verify/real.h"
#include "train/agree.h"
#include "train/launch.h"
#include "train/memory.h"

namespace tandem::verify {
namespace {

constexpr std::size_t kShownRows = 12;

void write_json(const std::string& path, const nlohmann::ordered_json& json) {
  std::ofstream out(path);
  out << json.dump(1) << '\n';
  if (!out.flush()) {
    throw ConfigError("--json " + path + ": cannot be written");
  }
}

class VerifyJob : public Job {
 public:
  VerifyJob(const CommandLine& line, const Config& config, const Layout& layout)
      : json_(line.json), steps_(static_cast<int>(line.steps.value_or(2))) {
    config_ = line.full ? config : cut_config(config, cut_);
    config_.train.eval_every = 0;
    make_data_source(config_, layout);  // throws what is wrong with the data
  }

  int run(Session& session) override {
    const RankContext& rank = session.rank();
    const bool speaks = rank.layout.rank == 0;
    if (speaks) {
      fmt::print("verify: {}, tp {} x dp {}{}, {} step{}\n", config_.name, rank.layout.tp,
                 rank.layout.dp, config_.parallel.sequence_parallel ? ", sequence parallel" : "",
                 steps_, steps_ == 1 ? "" : "s");
      if (!cut_.empty()) {
        fmt::print("  cut to what takes seconds: {} (--full does not cut)\n", cut_);
      }
      std::fflush(stdout);
    }
    // Ranks wait for each other's one-rank runs, longer than for any step of training.
    session.world().set_timeout(3600);
    const std::unique_ptr<Device> host = make_reference_device(1);
    const auto verdict = session.world().make_group("verdict", rank.layout.world_group(), *host,
                                                    rank.ledger, nullptr);
    const Proof proof = prove(session.world(), config_, {.steps = steps_});
    for (const ExactArgument& argument : proof.exact) {
      for (Row row : argument.rows) {
        row.tensor += argument.config.precision == PrecisionChoice::kBf16 ? " (bf16)" : "";
        rows_.push_back(std::move(row));
      }
    }
    std::copy_if(proof.real_rows.begin(), proof.real_rows.end(), std::back_inserter(rows_),
                 [](const Row& row) { return !row.evidence; });
    agree(*verdict, [&] {
      if (speaks) {
        std::vector<PlantedFault> faults;
        if (proof.pass) {
          faults = smallest_faults(proof.real, proof.real_rows, proof.storage);
        }
        show(proof, faults);
        if (!json_.empty()) {
          write_json(json_, to_json(proof, faults));
        }
      }
    });
    return static_cast<int>(proof.pass ? ExitCode::kDone : ExitCode::kCheckFailed);
  }

 private:
  void show(const Proof& proof, const std::vector<PlantedFault>& faults) const {
    for (const ExactArgument& exact : proof.exact) {
      const bool bf16 = exact.config.precision == PrecisionChoice::kBf16;
      fmt::print(
          "  exact argument: {}, {} layer{}, every {} at most {:.0f} of {:.0f}, compared bit by "
          "bit\n",
          bf16 ? "bf16" : "fp32", exact.config.model.layers,
          exact.config.model.layers == 1 ? "" : "s", bf16 ? "stored value" : "sum",
          bf16 ? exact.stored_bound : exact.sum_bound, bf16 ? 0x1p8 : 0x1p24);
    }
    if (proof.exact.empty()) {
      fmt::print(
          "  exact argument: left out, one layer of this model already has sums beyond 2^24\n");
    } else if (config_.precision == PrecisionChoice::kBf16 && proof.exact.size() == 1) {
      fmt::print("  exact argument: not in bf16, one layer already stores values beyond 2^8\n");
    }
    fmt::print("  real argument: {} tokens in step 1, against double and {} one-rank runs\n\n",
               proof.real.layout.tokens.front(), proof.real.variants.size());
    std::vector<Row> worst = rows_;
    std::stable_sort(worst.begin(), worst.end(), [](const Row& a, const Row& b) {
      return std::pair(a.pass, -a.budget_used) < std::pair(b.pass, -b.budget_used);
    });
    fmt::print("  {:<9} {:>4}  {:<34} {:>12} {:>12} {:>8}\n", "argument", "step", "tensor", "error",
               "one rank", "budget");
    for (std::size_t i = 0; i < std::min(worst.size(), kShownRows); ++i) {
      const Row& row = worst[i];
      const std::string budget =
          row.budget_used > 1e6 ? "bits" : fmt::format("{:.0f} %", 100 * row.budget_used);
      fmt::print("  {:<9} {:>4}  {:<34} {:>12.3e} {:>12.3e} {:>8}{}\n", row.argument, row.step,
                 row.tensor, row.error_layout, row.error_one_rank, budget,
                 row.pass ? "" : "  FAILS");
    }
    const auto failed =
        std::count_if(rows_.begin(), rows_.end(), [](const Row& r) { return !r.pass; });
    if (rows_.size() > kShownRows) {
      fmt::print("  ... and {} rows more\n", rows_.size() - kShownRows);
    }
    fmt::print("\n");
    if (proof.pass) {
      fmt::print("proved: {} rows pass. The smallest faults that would have been seen:\n",
                 rows_.size());
      for (const PlantedFault& fault : faults) {
        fmt::print("  {}{}\n", fault.fault, fault.seen ? "" : "  (NOT seen)");
      }
    } else {
      fmt::print("NOT proved: {} of {} rows fail.\n{}\n", failed, rows_.size(), proof.diagnosis);
    }
    std::fflush(stdout);
  }

  nlohmann::ordered_json to_json(const Proof& proof,
                                 const std::vector<PlantedFault>& faults) const {
    nlohmann::ordered_json json = {{"pass", proof.pass}, {"rows", nlohmann::ordered_json::array()}};
    for (const Row& row : rows_) {
      json["rows"].push_back({{"argument", row.argument},
                              {"step", row.step},
                              {"tensor", row.tensor},
                              {"error_layout", row.error_layout},
                              {"error_one_rank", row.error_one_rank},
                              {"budget_used", row.budget_used},
                              {"pass", row.pass}});
    }
    json["smallest_faults"] = nlohmann::ordered_json::array();
    for (const PlantedFault& fault : faults) {
      json["smallest_faults"].push_back({{"fault", fault.fault}, {"seen", fault.seen}});
    }
    json["diagnosis"] = proof.diagnosis;
    return json;
  }

  std::string json_;
  int steps_;
  Config config_;
  std::string cut_;
  std::vector<Row> rows_;
};

class GridJob : public Job {
 public:
  GridJob(const CommandLine& line, const Config& config, const Layout& layout)
      : json_(line.json),
        steps_(static_cast<int>(line.steps.value_or(2))),
        points_(grid_of(config)) {
    for (GridPoint& point : points_) {
      std::string cut;
      point.config.train.eval_every = 0;
      point.config = line.full ? point.config : cut_config(point.config, cut);
    }
    make_data_source(config, layout);  // throws what is wrong with the data
  }

  int run(Session& session) override {
    const bool speaks = session.rank().layout.rank == 0;
    session.world().set_timeout(3600);
    const std::unique_ptr<Device> host = make_reference_device(1);
    const auto verdict = session.world().make_group("grid", session.rank().layout.world_group(),
                                                    *host, session.rank().ledger, nullptr);
    int failed = 0;
    int proved = 0;
    auto layouts = nlohmann::ordered_json::array();
    for (const GridPoint& point : points_) {
      std::string outcome = "not possible";
      std::string reason = point.skipped;
      if (reason.empty()) {
        const Proof proof = prove(session.world(), point.config, {.steps = steps_});
        outcome = proof.pass ? "proved" : "NOT proved";
        reason = proof.diagnosis;
        ++(proof.pass ? proved : failed);
      }
      const Config& config = point.config;
      layouts.push_back({{"tp", config.parallel.tp},
                         {"dp", config.parallel.dp},
                         {"sequence_parallel", config.parallel.sequence_parallel},
                         {"accumulation", config.accumulation()},
                         {"precision", name_of(precision_of(config).storage)},
                         {"possible", point.skipped.empty()},
                         {"pass", outcome == "proved"},
                         {"reason", reason}});
      if (speaks) {
        fmt::print("{:<52} {}{}{}\n", point.name, outcome, reason.empty() ? "" : ": ", reason);
        std::fflush(stdout);
      }
    }
    agree(*verdict, [&] {
      if (speaks) {
        fmt::print("{} proved, {} not proved, {} not possible\n", proved, failed,
                   std::ssize(points_) - proved - failed);
        std::fflush(stdout);
        if (!json_.empty()) {
          write_json(json_, {{"pass", failed == 0}, {"layouts", layouts}});
        }
      }
    });
    return static_cast<int>(failed == 0 ? ExitCode::kDone : ExitCode::kCheckFailed);
  }

 private:
  std::string json_;
  int steps_;
  std::vector<GridPoint> points_;
};

std::unique_ptr<Job> prepare(const CommandLine& line, const Config& config, const Layout& layout) {
  if (line.grid) {
    return std::make_unique<GridJob>(line, config, layout);
  }
  return std::make_unique<VerifyJob>(line, config, layout);
}

}  // namespace
}  // namespace tandem::verify

int main(int argc, char** argv) {
  using namespace tandem;
#ifdef __GLIBC__
  // Whole models come and go as doubles; kept in malloc's heaps they would double the memory.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
  return launch(
      {.description = {.name = "verify",
                       .purpose =
                           "Proves that the layout of a config computes what one rank computes: "
                           "exit 0 only if every row passes.",
                       .examples = {"mpirun -np 4 build/verify --config configs/ffn_tp2_dp2.yaml",
                                    "build/verify --config ffn_tp4_dp1 --grid   (as threads)"},
                       .has_steps = true,
                       .has_full = true,
                       .has_grid = true,
                       .has_json = true},
       .prepare = verify::prepare},
      argc, argv);
}
