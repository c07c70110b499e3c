// The data that a config names, but that rank 1 cannot read at its third step.
#pragma once

#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "parallel/layout.h"
#include "train/config.h"
#include "train/data/source.h"

namespace tandem::test {

class FailingSource final : public DataSource {
 public:
  FailingSource(std::unique_ptr<DataSource> source, bool fails)
      : source_(std::move(source)), fails_(fails) {}

  std::span<const MicroBatch> fetch_step(std::int64_t consumed_samples) override {
    if (++steps_ == 3 && fails_) {
      throw std::runtime_error("the disk is gone");
    }
    return source_->fetch_step(consumed_samples);
  }
  std::int64_t evaluation_batches() const override { return source_->evaluation_batches(); }
  const MicroBatch& fetch_evaluation(std::int64_t index) override {
    return source_->fetch_evaluation(index);
  }
  std::string describe() const override { return source_->describe(); }

 private:
  std::unique_ptr<DataSource> source_;
  bool fails_;
  int steps_ = 0;
};

inline std::unique_ptr<DataSource> failing_source(const Config& config, const Layout& layout) {
  return std::make_unique<FailingSource>(make_data_source(config, layout), layout.rank == 1);
}

}  // namespace tandem::test
