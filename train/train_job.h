// The program `train`: start-up table, the loop over steps, evaluation, metrics, and the last
// lines.
#pragma once

#include <memory>

#include "train/data/source.h"
#include "train/launch.h"

namespace tandem {

class TrainJob : public Job {
 public:
  /// Opens the data. Throws what is wrong with config or data.
  TrainJob(const CommandLine& line, const Config& config, const Layout& layout);
  /// The same with a data source of the caller's.
  TrainJob(const Config& config, std::unique_ptr<DataSource> source);

  int run(Session& session) override;

 private:
  Config config_;
  bool dry_run_ = false;
  std::string import_file_, export_file_;
  std::unique_ptr<DataSource> source_;
};

Program train_program();

}  // namespace tandem
