// The schema of a run: what a YAML file, `--set` overrides and defaults resolve to. Reading is
// strict: everything a typo could hide is an error that names file, line, key, value and remedy.
// docs/config.md and configs/reference.yaml describe each key; a test keeps the three together.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace tandem {

enum class DeviceChoice { kAuto, kCpu, kCuda, kReference };
enum class CommChoice { kAuto, kLocal, kMpi, kNccl };
enum class PrecisionChoice { kFp32, kBf16, kFp16 };
enum class GradientType { kFp32, kBf16 };
enum class ModelKind { kMlpLm, kFfn };
enum class DataFormat { kText, kLlmc, kMegatron, kNpy, kRawU16, kSynthetic };
enum class Documents { kPadded, kPacked };

struct ParallelConfig {
  int tp = 1;
  int dp = 1;
  bool sequence_parallel = false;
  int zero = 0;                  ///< 1 = ZeRO-1
  std::int64_t bucket_mb = 256;  ///< MiB of fp32 main gradients
  GradientType grad_dtype = GradientType::kFp32;
  CommChoice comm = CommChoice::kAuto;
  double timeout_s = 60;

  bool operator==(const ParallelConfig&) const = default;
};

struct ModelConfig {
  ModelKind kind = ModelKind::kMlpLm;
  std::int64_t vocab_size = 256;  ///< mlp_lm only
  /// mlp_lm only: tokens of history each position sees, itself included.
  std::int64_t context = 16;
  std::int64_t hidden = 256;
  std::int64_t ffn = 1024;
  std::int64_t layers = 4;
  Activation activation = Activation::kGelu;
  NormKind norm = NormKind::kLayerNorm;
  double norm_eps = 1e-5;
  bool bias = true;
  double dropout = 0.0;

  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  DataFormat format = DataFormat::kText;
  std::string path = "data/kjv.txt";
  std::int64_t seq_len = 256;
  Documents documents = Documents::kPadded;
  bool shuffle = true;
  double valid_fraction = 0.05;

  bool operator==(const DataConfig&) const = default;
};

struct TrainConfig {
  std::int64_t steps = 200;
  std::int64_t micro_batch = 8;    ///< sequences per micro-batch per data rank
  std::int64_t global_batch = 32;  ///< sequences per optimizer step
  double clip_grad_norm = 1.0;     ///< 0 = off
  std::int64_t eval_every = 50;    ///< 0 = never
  std::int64_t max_skipped = 10;

  bool operator==(const TrainConfig&) const = default;
};

struct OptimConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;  ///< sgd only
  ScheduleConfig schedule;

  bool operator==(const OptimConfig&) const = default;
};

struct CheckpointConfig {
  std::int64_t every = 0;
  std::int64_t keep = 2;
  std::string resume = "auto";  ///< auto | never | a path

  bool operator==(const CheckpointConfig&) const = default;
};

struct LogConfig {
  std::int64_t every = 10;
  std::string dir = "runs";
  bool tensorboard = false;

  bool operator==(const LogConfig&) const = default;
};

struct ProfileConfig {
  bool nvtx = true;
  bool trace = false;
  /// First and last step that a profiler with a capture range records; {0, 0} = none.
  std::array<std::int64_t, 2> steps = {0, 0};

  bool operator==(const ProfileConfig&) const = default;
};

struct CudaConfig {
  bool tf32 = false;

  bool operator==(const CudaConfig&) const = default;
};

struct Config {
  std::string name;  ///< default: the config file's name without its ending
  std::uint64_t seed = 1234;
  DeviceChoice device = DeviceChoice::kAuto;
  PrecisionChoice precision = PrecisionChoice::kFp32;
  int threads = 0;  ///< OpenMP threads per rank; 0 = auto
  ParallelConfig parallel;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimConfig optim;
  CheckpointConfig checkpoint;
  LogConfig log;
  ProfileConfig profile;
  CudaConfig cuda;

  bool operator==(const Config&) const = default;

  int world() const { return parallel.tp * parallel.dp; }
  /// Micro-batches per step.
  std::int64_t accumulation() const {
    return train.global_batch / (train.micro_batch * parallel.dp);
  }
};

/// Where a config comes from. `launched_ranks` is the number of ranks the launcher started, absent
/// when started plainly: it decides `dp` where the file leaves it out, and is checked against tp*dp
/// by the caller (which knows the whole command line).
struct ConfigSource {
  std::string file;  ///< a bare name is also sought in configs/, with and without .yaml
  /// Each "key.path=value", the value being YAML; a map sets the keys it names, null unsets. The
  /// last one wins.
  std::vector<std::string> overrides;
  std::optional<int> launched_ranks;
};

/// Reads, resolves and validates. Throws ConfigError whose text starts with `file:line:column` (or
/// `--set` and its text, or the file alone for a default) and the key path.
Config load_config(const ConfigSource& source);

/// The same for text already in memory; `source.file` is only its name.
Config parse_config(std::string_view text, const ConfigSource& source);

/// The first line that differs between two configs' texts, in each.
std::pair<std::string, std::string> first_difference(const std::string& text,
                                                     const std::string& other);

/// The resolved config as YAML text; load_config of it gives the same Config.
std::string to_yaml(const Config& config);

/// Every key path of the schema in order, e.g. "optim.schedule.kind", with its type, default and
/// one line of help; the source of `--help` hints, suggestions and the completeness test.
struct ConfigKey {
  std::string path;
  std::string type;  ///< e.g. "integer >= 1"
  std::string default_text;
  std::string help;
};
std::vector<ConfigKey> config_keys();

}  // namespace tandem
