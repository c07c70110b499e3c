#include "train/config_schema.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "train/config_rows.h"

namespace tandem {
namespace {

constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
/// The product of two group sizes stays an int.
constexpr std::int64_t kMaxRanks = 32768;

bool positive(double v) { return v > 0; }
bool non_negative(double v) { return v >= 0; }
bool below_one(double v) { return v >= 0 && v < 1; }

/// A name becomes a folder inside log.dir.
SchemaKey name_key() {
  SchemaKey key;
  key.path = "name";
  key.type = "text";
  key.default_text = "(the file's name without its ending)";
  key.help = "the run's folder inside log.dir";
  key.read = [](const yaml::Field& field, Config& config) {
    config.name = yaml::read_string(field);
    const bool plain = !config.name.empty() && config.name != "." && config.name != ".." &&
                       config.name.size() <= 200 &&
                       std::none_of(config.name.begin(), config.name.end(), [](char c) {
                         return c == '/' || static_cast<unsigned char>(c) < 0x20;
                       });
    if (!plain) {
      yaml::refuse(field, "write a plain folder name without `/`; its parent is log.dir");
    }
  };
  key.write = [](const Config& config) { return yaml::string_text(config.name); };
  return key;
}

SchemaKey seed_key() {
  SchemaKey key;
  key.path = "seed";
  key.type = "integer >= 0";
  key.help = "of initial weights, dropout and sample order";
  key.read = [](const yaml::Field& field, Config& config) {
    config.seed = yaml::read_unsigned(field);
  };
  key.write = [](const Config& config) { return std::to_string(config.seed); };
  return finish(std::move(key));
}

SchemaKey threads_key() {
  SchemaKey key;
  key.path = "threads";
  key.type = "auto | integer >= 1";
  key.help =
      "OpenMP threads per rank; auto = OMP_NUM_THREADS if set, else allowed CPUs / ranks on the "
      "host";
  key.read = [](const yaml::Field& field, Config& config) {
    const bool is_auto = field.node.kind == yaml::Kind::kScalar && field.node.text == "auto";
    config.threads = is_auto ? 0 : static_cast<int>(yaml::read_integer(field, 1, 4096));
  };
  key.write = [](const Config& config) {
    return config.threads == 0 ? "auto" : std::to_string(config.threads);
  };
  return finish(std::move(key));
}

SchemaKey zero_key() {
  SchemaKey key;
  key.path = "parallel.zero";
  key.type = "0 | 1";
  key.help = "1 = masters and optimizer states sharded over data ranks (ZeRO-1)";
  key.read = [](const yaml::Field& field, Config& config) {
    config.parallel.zero = static_cast<int>(yaml::read_integer(field, 0, 3));
    if (config.parallel.zero > 1) {
      yaml::refuse(field, "gradients and weights are not sharded: write 0 or 1");
    }
  };
  key.write = [](const Config& config) { return std::to_string(config.parallel.zero); };
  return finish(std::move(key));
}

SchemaKey betas_key() {
  SchemaKey key;
  key.path = "optim.betas";
  key.type = "[number >= 0 and < 1, same]";
  key.help = "decay of AdamW's first and second moment";
  key.read = [](const yaml::Field& field, Config& config) {
    const yaml::Node& node = field.node;
    if (node.kind != yaml::Kind::kSequence || node.items.size() != 2) {
      yaml::refuse(field, "expected two numbers: write them as [0.9, 0.95]");
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const yaml::Field item{field.where, field.key + "[" + std::to_string(i) + "]", node.items[i]};
      config.optim.betas[i] = yaml::read_number(item, ">= 0 and < 1", below_one);
    }
  };
  key.write = [](const Config& config) {
    return "[" + yaml::number_text(config.optim.betas[0]) + ", " +
           yaml::number_text(config.optim.betas[1]) + "]";
  };
  return finish(std::move(key));
}

SchemaKey resume_key() {
  SchemaKey key;
  key.path = "checkpoint.resume";
  key.type = "auto | never | PATH";
  key.help =
      "auto = go on from the run's newest whole checkpoint, if it has one; PATH: of a "
      "checkpoint or a run";
  key.read = [](const yaml::Field& field, Config& config) {
    config.checkpoint.resume = yaml::read_string(field);
    if (config.checkpoint.resume.empty()) {
      yaml::refuse(field, "write auto, never, or the path of a checkpoint or a run directory");
    }
  };
  key.write = [](const Config& config) { return yaml::string_text(config.checkpoint.resume); };
  return finish(std::move(key));
}

SchemaKey profile_steps_key() {
  SchemaKey key;
  key.path = "profile.steps";
  key.type = "[] | [integer >= 1, integer >= the first]";
  key.help = "first and last step that a profiler's capture range covers (GPUs); [] = none";
  key.read = [](const yaml::Field& field, Config& config) {
    const yaml::Node& node = field.node;
    auto& steps = config.profile.steps;
    steps = {0, 0};
    if (node.kind == yaml::Kind::kSequence && node.items.empty()) {
      return;
    }
    if (node.kind != yaml::Kind::kSequence || node.items.size() != 2) {
      yaml::refuse(field, "expected the first and the last step: write them as [10, 12]");
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const yaml::Field item{field.where, field.key + "[" + std::to_string(i) + "]", node.items[i]};
      steps[i] = yaml::read_integer(item, i == 0 ? 1 : steps[0], kMaxCount);
    }
  };
  key.write = [](const Config& config) {
    const auto& steps = config.profile.steps;
    return steps[0] == 0 ? std::string("[]")
                         : "[" + std::to_string(steps[0]) + ", " + std::to_string(steps[1]) + "]";
  };
  return finish(std::move(key));
}

SchemaKey dp_key() {
  SchemaKey key = integer("parallel.dp", of(&Config::parallel, &ParallelConfig::dp), {1, kMaxRanks},
                          "data-parallel ranks, each with its own part of the batch");
  key.default_text = "(launched ranks / tp; 1 without a launcher)";
  return key;
}

std::string_view idle_in_ffn(const Config& config) {
  return config.model.kind == ModelKind::kFfn ? "model.kind ffn has no vocabulary and no documents"
                                              : "";
}

std::string_view idle_in_synthetic(const Config& config) {
  return config.data.format == DataFormat::kSynthetic
             ? "data.format synthetic is generated, not read"
             : "";
}

SchemaKey idle_when(std::string_view (*idle)(const Config&), SchemaKey key) {
  key.idle = idle;
  return key;
}

std::vector<SchemaKey> general_keys() {
  return {
      name_key(),
      seed_key(),
      choice<DeviceChoice>("device", of(&Config::device),
                           {{"auto", DeviceChoice::kAuto},
                            {"cpu", DeviceChoice::kCpu},
                            {"cuda", DeviceChoice::kCuda},
                            {"reference", DeviceChoice::kReference}},
                           "auto = GPUs if every host has one, else the CPU"),
      choice<PrecisionChoice>(
          "precision", of(&Config::precision),
          {{"fp32", PrecisionChoice::kFp32},
           {"bf16", PrecisionChoice::kBf16},
           {"fp16", PrecisionChoice::kFp16}},
          "storage of weights and activations; masters, main gradients and sums stay fp32"),
      threads_key(),
  };
}

std::vector<SchemaKey> parallel_keys() {
  return {
      integer("parallel.tp", of(&Config::parallel, &ParallelConfig::tp), {1, kMaxRanks},
              "tensor-parallel ranks: each holds 1/tp of every matrix"),
      dp_key(),
      boolean("parallel.sequence_parallel",
              of(&Config::parallel, &ParallelConfig::sequence_parallel),
              "cut the rows of norm, dropout and residual over tp ranks"),
      zero_key(),
      integer("parallel.bucket_mb", of(&Config::parallel, &ParallelConfig::bucket_mb), {1, 1 << 20},
              "MiB of fp32 gradients that are reduced at once; a bucket holds one block at most"),
      choice<GradientType>("parallel.grad_dtype",
                           of(&Config::parallel, &ParallelConfig::grad_dtype),
                           {{"fp32", GradientType::kFp32}, {"bf16", GradientType::kBf16}},
                           "type of gradients on their way between data ranks; sums stay fp32"),
      choice<CommChoice>(
          "parallel.comm", of(&Config::parallel, &ParallelConfig::comm),
          {{"auto", CommChoice::kAuto},
           {"local", CommChoice::kLocal},
           {"mpi", CommChoice::kMpi},
           {"nccl", CommChoice::kNccl}},
          "collectives: local = ranks are threads of one process; nccl = a GPU per rank"),
      number("parallel.timeout_s", of(&Config::parallel, &ParallelConfig::timeout_s), "> 0",
             positive, "seconds a collective may wait for its peers"),
  };
}

std::vector<SchemaKey> model_keys() {
  return {
      choice<ModelKind>("model.kind", of(&Config::model, &ModelConfig::kind),
                        {{"mlp_lm", ModelKind::kMlpLm}, {"ffn", ModelKind::kFfn}},
                        "mlp_lm = language model; ffn = bare stack, for benchmarks"),
      idle_when(idle_in_ffn,
                integer("model.vocab_size", of(&Config::model, &ModelConfig::vocab_size), {1},
                        "number of token ids; 256 for bytes of text (mlp_lm only)")),
      idle_when(idle_in_ffn,
                integer("model.context", of(&Config::model, &ModelConfig::context), {1},
                        "tokens of history a position sees, itself included (mlp_lm only)")),
      integer("model.hidden", of(&Config::model, &ModelConfig::hidden), {1},
              "width of the residual stream"),
      integer("model.ffn", of(&Config::model, &ModelConfig::ffn), {1},
              "width inside a block (swiglu: of one half); a multiple of tp"),
      integer("model.layers", of(&Config::model, &ModelConfig::layers), {1}, "blocks"),
      choice<Activation>("model.activation", of(&Config::model, &ModelConfig::activation),
                         {{"gelu", Activation::kGelu},
                          {"swiglu", Activation::kSwiglu},
                          {"relu", Activation::kRelu}},
                         "gelu is the tanh form; swiglu = silu(gate) * up"),
      choice<NormKind>("model.norm", of(&Config::model, &ModelConfig::norm),
                       {{"layernorm", NormKind::kLayerNorm}, {"rmsnorm", NormKind::kRmsNorm}},
                       "before each block and at the end; only layernorm has a bias"),
      number("model.norm_eps", of(&Config::model, &ModelConfig::norm_eps), "> 0", positive,
             "added to the variance"),
      boolean("model.bias", of(&Config::model, &ModelConfig::bias), "of fc1 and fc2"),
      number(
          "model.dropout", of(&Config::model, &ModelConfig::dropout), ">= 0 and <= 0.99",
          [](double v) { return v >= 0 && v <= 0.99; },
          "share of a block's output that is zeroed in training"),
  };
}

std::vector<SchemaKey> data_keys() {
  return {
      choice<DataFormat>("data.format", of(&Config::data, &DataConfig::format),
                         {{"text", DataFormat::kText},
                          {"llmc", DataFormat::kLlmc},
                          {"megatron", DataFormat::kMegatron},
                          {"npy", DataFormat::kNpy},
                          {"raw_u16", DataFormat::kRawU16},
                          {"synthetic", DataFormat::kSynthetic}},
                         "text = bytes, each line a document; synthetic = generated; the "
                         "others hold token ids (docs/data.md)"),
      idle_when(idle_in_synthetic,
                text("data.path", of(&Config::data, &DataConfig::path),
                     "file to read, or a glob of llmc shards (not for synthetic)")),
      integer("data.seq_len", of(&Config::data, &DataConfig::seq_len), {1},
              "positions of a sequence"),
      idle_when(
          idle_in_ffn,
          choice<Documents>(
              "data.documents", of(&Config::data, &DataConfig::documents),
              {{"padded", Documents::kPadded}, {"packed", Documents::kPacked}},
              "padded = one document per sequence, the rest masked; packed = documents joined")),
      boolean("data.shuffle", of(&Config::data, &DataConfig::shuffle),
              "a new order in each epoch, from the seed"),
      idle_when(idle_in_ffn,
                number("data.valid_fraction", of(&Config::data, &DataConfig::valid_fraction),
                       ">= 0 and < 1", below_one,
                       "the last part of the documents, held out for evaluation")),
  };
}

std::vector<SchemaKey> train_keys() {
  return {
      integer("train.steps", of(&Config::train, &TrainConfig::steps), {1},
              "the last step of the run"),
      integer("train.micro_batch", of(&Config::train, &TrainConfig::micro_batch), {1},
              "sequences per micro-batch per data rank"),
      integer("train.global_batch", of(&Config::train, &TrainConfig::global_batch), {1},
              "sequences per optimizer step; accumulation = global_batch / (micro_batch * dp)"),
      number("train.clip_grad_norm", of(&Config::train, &TrainConfig::clip_grad_norm), ">= 0",
             non_negative, "largest global gradient norm; 0 = off"),
      integer("train.eval_every", of(&Config::train, &TrainConfig::eval_every), {0},
              "steps between evaluations; 0 = never, the default if nothing is held out"),
      integer("train.max_skipped", of(&Config::train, &TrainConfig::max_skipped), {1},
              "consecutive non-finite steps that end the run"),
  };
}

std::vector<SchemaKey> optim_keys() {
  return {
      choice<OptimizerKind>("optim.kind", of(&Config::optim, &OptimConfig::kind),
                            {{"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}},
                            "both decay the weights decoupled"),
      number("optim.lr", of(&Config::optim, &OptimConfig::lr), "> 0", positive,
             "base learning rate"),
      betas_key(),
      number("optim.eps", of(&Config::optim, &OptimConfig::eps), "> 0", positive,
             "added to the root of AdamW's second moment"),
      number("optim.weight_decay", of(&Config::optim, &OptimConfig::weight_decay), ">= 0",
             non_negative, "of matrices; biases and norm weights do not decay"),
      number("optim.momentum", of(&Config::optim, &OptimConfig::momentum), ">= 0 and < 1",
             below_one, "sgd only"),
      choice<ScheduleKind>("optim.schedule.kind", of_schedule(&ScheduleConfig::kind),
                           {{"constant", ScheduleKind::kConstant},
                            {"linear", ScheduleKind::kLinear},
                            {"cosine", ScheduleKind::kCosine},
                            {"wsd", ScheduleKind::kWsd}},
                           "fall of the rate after the warm-up; wsd = stable, then linear"),
      integer("optim.schedule.warmup_steps", of_schedule(&ScheduleConfig::warmup_steps), {0},
              "linear from lr/warmup_steps at step 1 to lr"),
      integer("optim.schedule.stable_steps", of_schedule(&ScheduleConfig::stable_steps), {0},
              "steps at lr after the warm-up (wsd only)"),
      integer("optim.schedule.decay_steps", of_schedule(&ScheduleConfig::decay_steps), {0},
              "the step (not a length) where min_lr is reached; 0 = never"),
      number("optim.schedule.min_lr", of_schedule(&ScheduleConfig::min_lr), ">= 0", non_negative,
             "learning rate at and after decay_steps"),
  };
}

std::vector<SchemaKey> output_keys() {
  return {
      integer("checkpoint.every", of(&Config::checkpoint, &CheckpointConfig::every), {0},
              "steps between checkpoints; 0 = only when a run is stopped"),
      integer("checkpoint.keep", of(&Config::checkpoint, &CheckpointConfig::keep), {1},
              "newest checkpoints that stay"),
      resume_key(),
      integer("log.every", of(&Config::log, &LogConfig::every), {1},
              "steps between lines on the console; metrics.jsonl has every step"),
      text("log.dir", of(&Config::log, &LogConfig::dir), "where run folders are made"),
      boolean("log.tensorboard", of(&Config::log, &LogConfig::tensorboard),
              "metrics also as TensorBoard's event files"),
      boolean("profile.nvtx", of(&Config::profile, &ProfileConfig::nvtx),
              "name ranges for NVIDIA's profilers"),
      boolean("profile.trace", of(&Config::profile, &ProfileConfig::trace),
              "write trace.json: what every rank did when, for a trace viewer"),
      profile_steps_key(),
      boolean("cuda.tf32", of(&Config::cuda, &CudaConfig::tf32),
              "fp32 matmuls on GPUs round their inputs to 10 bits of mantissa: faster, less exact"),
  };
}

}  // namespace

const std::vector<SchemaKey>& config_schema() {
  static const std::vector<SchemaKey> table = [] {
    std::vector<SchemaKey> all;
    for (const auto& group : {general_keys(), parallel_keys(), model_keys(), data_keys(),
                              train_keys(), optim_keys(), output_keys()}) {
      all.insert(all.end(), group.begin(), group.end());
    }
    return all;
  }();
  return table;
}

const SchemaKey* find_key(std::string_view path) {
  for (const SchemaKey& key : config_schema()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

bool is_section(std::string_view path) {
  const std::string prefix = std::string(path) + ".";
  return std::any_of(config_schema().begin(), config_schema().end(),
                     [&](const SchemaKey& key) { return key.path.starts_with(prefix); });
}

}  // namespace tandem
