// What to say about a key that the schema does not know.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "train/config_schema.h"

namespace tandem {
namespace {

/// A key of another framework, and the key path here or a sentence.
struct Alias {
  std::string_view theirs;
  std::string_view ours;
};

constexpr std::string_view kLayout =
    "only tensor and data parallelism exist here: parallel.tp and parallel.dp";
constexpr std::string_view kAccumulation =
    "accumulation is train.global_batch / (train.micro_batch * parallel.dp)";

constexpr std::array kAliases = std::to_array<Alias>({
    {"accumulate_allreduce_grads_in_fp32", "gradients are always summed in fp32, leave it out"},
    {"adam_beta1", "optim.betas"},
    {"adam_beta2", "optim.betas"},
    {"adam_eps", "optim.eps"},
    {"adam_epsilon", "optim.eps"},
    {"backend", "parallel.comm"},
    {"batch_accumulation_per_replica", kAccumulation},
    {"batch_size", "train.micro_batch"},
    {"beta1", "optim.betas"},
    {"beta2", "optim.betas"},
    {"bf16", "precision"},
    {"checkpoint_interval", "checkpoint.every"},
    {"checkpoints", "checkpoint"},
    {"clip_grad", "train.clip_grad_norm"},
    {"context_parallel_size", kLayout},
    {"d_ff", "model.ffn"},
    {"d_model", "model.hidden"},
    {"data_parallel_degree", "parallel.dp"},
    {"data_parallel_replicate_degree", "parallel.dp"},
    {"data_parallel_size", "parallel.dp"},
    {"data_path", "data.path"},
    {"dataset", "data"},
    {"decay_type", "optim.schedule.kind"},
    {"disable_bias_linear", "model.bias"},
    {"distributed_backend", "parallel.comm"},
    {"distributed_timeout_minutes", "parallel.timeout_s"},
    {"dp_size", "parallel.dp"},
    {"dtype", "precision"},
    {"eval_interval", "train.eval_every"},
    {"eval_steps", "train.eval_every"},
    {"ffn_hidden_size", "model.ffn"},
    {"fp16", "precision"},
    {"global_batch_size", "train.global_batch"},
    {"grad_clip", "train.clip_grad_norm"},
    {"gradient_accumulation_steps", kAccumulation},
    {"gradient_clipping", "train.clip_grad_norm"},
    {"hidden_act", "model.activation"},
    {"hidden_dropout", "model.dropout"},
    {"hidden_size", "model.hidden"},
    {"intermediate_size", "model.ffn"},
    {"iteration_step_info_interval", "log.every"},
    {"learning_rate", "optim.lr"},
    {"learning_rate_scheduler", "optim.schedule"},
    {"load", "checkpoint.resume"},
    {"log_freq", "log.every"},
    {"log_interval", "log.every"},
    {"logging", "log"},
    {"logging_steps", "log.every"},
    {"lr_decay_iters", "optim.schedule.decay_steps"},
    {"lr_decay_steps", "optim.schedule.decay_steps"},
    {"lr_decay_style", "optim.schedule.kind"},
    {"lr_min", "optim.schedule.min_lr"},
    {"lr_scheduler", "optim.schedule"},
    {"lr_scheduler_type", "optim.schedule.kind"},
    {"lr_warmup_iters", "optim.schedule.warmup_steps"},
    {"lr_warmup_steps", "optim.schedule.warmup_steps"},
    {"make_vocab_size_divisible_by", "vocabularies are padded as needed, leave it out"},
    {"max_grad_norm", "train.clip_grad_norm"},
    {"max_norm", "train.clip_grad_norm"},
    {"max_steps", "train.steps"},
    {"micro_batch_size", "train.micro_batch"},
    {"min_decay_lr", "optim.schedule.min_lr"},
    {"n_embd", "model.hidden"},
    {"n_layer", "model.layers"},
    {"norm_type", "model.norm"},
    {"normalization", "model.norm"},
    {"num_hidden_layers", "model.layers"},
    {"num_layers", "model.layers"},
    {"optimizer", "optim"},
    {"output_dir", "log.dir"},
    {"parallelism", "parallel"},
    {"per_device_train_batch_size", "train.micro_batch"},
    {"pipeline_model_parallel_size", kLayout},
    {"pp", kLayout},
    {"profiling", "profile"},
    {"resume_checkpoint_path", "checkpoint.resume"},
    {"resume_from_checkpoint", "checkpoint.resume"},
    {"rms_norm_eps", "model.norm_eps"},
    {"run_name", "name"},
    {"save", "log.dir"},
    {"save_interval", "checkpoint.every"},
    {"save_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"scheduler", "optim.schedule"},
    {"seq_length", "data.seq_len"},
    {"sequence_length", "data.seq_len"},
    {"split", "data.valid_fraction"},
    {"swiglu", "model.activation"},
    {"tensor_model_parallel_size", "parallel.tp"},
    {"tensor_parallel_degree", "parallel.tp"},
    {"tensor_parallel_size", "parallel.tp"},
    {"tp_size", "parallel.tp"},
    {"train_batch_size", "train.global_batch"},
    {"train_iters", "train.steps"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch"},
    {"train_steps", "train.steps"},
    {"training", "train"},
    {"use_distributed_optimizer", "parallel.zero"},
    {"val_check_interval", "train.eval_every"},
    {"warmup", "optim.schedule.warmup_steps"},
    {"zero_stage", "parallel.zero"},
});

std::string last_segment(const std::string& path) { return path.substr(path.rfind('.') + 1); }

std::string section_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

/// Command-line spellings: --Micro-Batch-Size is micro_batch_size.
std::string normalized(std::string text) {
  text.erase(0, std::min(text.find_first_not_of('-'), text.size()));
  for (char& c : text) {
    if (c == '-') c = '_';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

/// Every key and every section.
std::vector<std::string> valid_paths() {
  std::vector<std::string> paths;
  for (const SchemaKey& key : config_schema()) {
    for (std::size_t dot = key.path.find('.'); dot != std::string::npos;
         dot = key.path.find('.', dot + 1)) {
      const std::string section = key.path.substr(0, dot);
      if (std::find(paths.begin(), paths.end(), section) == paths.end()) paths.push_back(section);
    }
    paths.push_back(key.path);
  }
  return paths;
}

/// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string either(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " or ") + word;
  return out;
}

/// The valid paths whose last segment is `segment`.
std::vector<std::string> ending_in(const std::string& segment,
                                   const std::vector<std::string>& paths) {
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    if (last_segment(path) == segment) found.push_back(path);
  }
  return found;
}

std::string keys_of(const std::string& section, const std::vector<std::string>& paths) {
  std::string out;
  for (const std::string& path : paths) {
    if (section_of(path) == section) out += (out.empty() ? "" : ", ") + last_segment(path);
  }
  return out;
}

}  // namespace

std::string nearest(std::string_view text, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongest = 64;  // nothing longer is a typo of ours, and the cost is square
  if (text.size() > kLongest) return "";
  std::string best;
  std::size_t least = std::max<std::size_t>(1, text.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(text, candidate);
    if (distance < least && distance < candidate.size()) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string suggest_key(const std::string& path) {
  const std::vector<std::string> paths = valid_paths();
  const std::string segment = last_segment(path);
  const std::string section = section_of(path);
  const std::string plain = normalized(segment);

  if (const std::size_t colon = segment.find(':'); colon != std::string::npos) {
    return "put a space after the colon: " + segment.substr(0, colon) + ": " +
           segment.substr(colon + 1);
  }
  for (const Alias& alias : kAliases) {
    if (alias.theirs != plain) continue;
    const std::string ours(alias.ours);
    if (std::find(paths.begin(), paths.end(), ours) == paths.end()) return ours;
    return "did you mean " + ours + "?";
  }
  std::vector<std::string> siblings;
  std::vector<std::string> segments;
  for (const std::string& valid : paths) {
    segments.push_back(last_segment(valid));
    if (section_of(valid) == section) siblings.push_back(last_segment(valid));
  }
  if (const std::string near = nearest(plain, siblings); !near.empty()) {
    return "did you mean " + (section.empty() ? near : section + "." + near) + "?";
  }
  if (const std::string near = nearest(plain, segments); !near.empty()) {
    return "did you mean " + either(ending_in(near, paths)) + "?";
  }
  if (const std::string near = nearest(path, paths); !near.empty()) {
    return "did you mean " + near + "?";
  }
  const std::string known = is_section(section) ? section : "";
  return (known.empty() ? "the keys are " : "the keys of " + known + " are ") +
         keys_of(known, paths);
}

}  // namespace tandem
