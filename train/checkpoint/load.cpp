#include "train/checkpoint/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <tuple>

#include "train/checkpoint/folder.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

std::vector<std::int64_t> sizes_of(const Shape& shape) {
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < shape.rank(); ++i) {
    sizes.push_back(shape[i]);
  }
  return sizes;
}

/// Copies the overlap of a piece with elements [start, start + local.size()) of this rank's part of
/// the parameter; returns how many they are.
std::int64_t copy_overlap(const SafetensorsFile& file, const Piece& piece,
                          const Parameter& parameter, std::int64_t start, std::span<double> local) {
  const std::int64_t stop = start + std::ssize(local);
  std::int64_t end = 0;  // of what is needed of the piece
  for_each_common_run(piece, parameter, start, stop,
                      [&](std::int64_t from, auto, std::int64_t length) { end = from + length; });
  std::int64_t copied = 0;
  // Elements of the piece from `read` on: short runs do not become short reads.
  std::vector<double> chunk;
  std::int64_t read = 0;
  for_each_common_run(piece, parameter, start, stop,
                      [&](std::int64_t from, std::int64_t to, std::int64_t length) {
                        copied += length;
                        double* const out = local.data() + (to - start);
                        if (length >= kHostPiece) {
                          file.read(piece.key, from, length, out);
                          return;
                        }
                        if (from < read || from + length > read + std::ssize(chunk)) {
                          read = from;
                          chunk.resize(static_cast<std::size_t>(std::min(kHostPiece, end - read)));
                          file.read(piece.key, read, std::ssize(chunk), chunk.data());
                        }
                        std::copy_n(chunk.begin() + (from - read), length, out);
                      });
  return copied;
}

/// Calls `visit(start, stop)` for ranges of at most kHostPiece elements that cover `parameter`.
template <typename Visit>
void in_pieces(const Parameter& parameter, const Visit& visit) {
  const std::int64_t count = parameter.local_shape().numel();
  for (std::int64_t start = 0; start < count; start += kHostPiece) {
    visit(start, std::min(start + kHostPiece, count));
  }
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& directory)
    : directory_(directory), manifest_(read_manifest(directory)) {
  for (const Piece& piece : manifest_.pieces) {
    pieces_[{piece.tensor, piece.kept}].push_back(&piece);
  }
}

const SafetensorsFile& Checkpoint::file(const std::string& name) {
  std::unique_ptr<SafetensorsFile>& file = files_[name];
  if (!file) {
    file = std::make_unique<SafetensorsFile>(directory_ / name);
  }
  return *file;
}

void Checkpoint::check_whole() {
  // (tensor, state, part) -> ranges
  std::map<std::tuple<std::string, Kept, std::int64_t>, std::vector<const Piece*>> ranges;
  const std::string manifest = (directory_ / kManifestName).string();
  for (const Piece& piece : manifest_.pieces) {
    const auto& entry = file(piece.file).find(piece.key);
    if (entry.shape != sizes_of(piece.own_shape())) {
      throw DataError(fmt::format("{}: '{}' has shape [{}], and its manifest says {}",
                                  (directory_ / piece.file).string(), piece.key,
                                  fmt::join(entry.shape, ", "), piece.own_shape().to_string()));
    }
    ranges[{piece.tensor, piece.kept, piece.part}].push_back(&piece);
  }
  std::map<std::pair<std::string, Kept>, std::int64_t> parts;
  for (auto& [of, pieces] : ranges) {
    const auto& [tensor, kept, part] = of;
    std::sort(pieces.begin(), pieces.end(), [](const Piece* a, const Piece* b) {
      return std::tie(a->start, a->flat_start) < std::tie(b->start, b->flat_start);
    });
    const Piece& first = *pieces.front();
    const std::int64_t size = first.dimension < 0 ? 1 : first.shape[first.dimension] / first.parts;
    std::int64_t covered = 0;       // of the dimension, by whole boxes
    std::int64_t covered_flat = 0;  // of the box that begins there
    for (const Piece* piece : pieces) {
      if (piece->start != covered || piece->flat_start != covered_flat ||
          piece->shape != first.shape || piece->dimension != first.dimension ||
          piece->parts != first.parts) {
        throw DataError(fmt::format(
            "{}: the pieces of {} ({}) do not fit together at {}, element {}: one begins at {}, "
            "element {}, shape {}",
            manifest, tensor, name_of(kept), covered, covered_flat, piece->start, piece->flat_start,
            piece->shape.to_string()));
      }
      covered_flat = piece->flat_stop;
      if (covered_flat == piece->outer() * piece->row()) {
        covered = piece->stop;
        covered_flat = 0;
      }
    }
    if (covered != size) {
      throw DataError(fmt::format("{}: {} ({}) ends at {} of {}", manifest, tensor, name_of(kept),
                                  covered, size));
    }
    if (++parts[{tensor, kept}] > first.parts || part >= first.parts) {
      throw DataError(fmt::format("{}: {} has more parts than {}", manifest, tensor, first.parts));
    }
  }
  for (const Piece& piece : manifest_.pieces) {
    if (parts.at({piece.tensor, piece.kept}) != piece.parts) {
      throw DataError(fmt::format("{}: {} ({}) lacks one of its {} parts", manifest, piece.tensor,
                                  name_of(piece.kept), piece.parts));
    }
  }
}

void Checkpoint::check_model(const Config& config, int moments) const {
  const std::string place = directory_.string();
  Config saved;
  try {
    saved = parse_config(manifest_.config, {.file = place + "/" + kManifestName + " config"});
  } catch (const ConfigError& error) {
    throw DataError(error.what());
  }
  Config other = config;
  other.model = saved.model;
  if (!(other == config)) {
    const auto [there, here] = first_difference(to_yaml(other), to_yaml(config));
    throw DataError(fmt::format(
        "{}: is a checkpoint of another model: it has `{}` where this config has `{}`. Give this "
        "run another name, or write checkpoint.resume: never.",
        place, there, here));
  }
  if (manifest_.moments != moments) {
    throw DataError(fmt::format(
        "{}: was written by {} and this config has optim.kind: {}. Give this run another name, or "
        "start from the weights alone with --import.",
        place, manifest_.moments == 2 ? "adamw" : "sgd", moments == 2 ? "adamw" : "sgd"));
  }
}

std::vector<double> Checkpoint::read(const Parameter& parameter, Kept kept, std::int64_t start,
                                     std::int64_t stop) {
  std::vector<double> local(static_cast<std::size_t>(stop - start), 0.0);
  std::int64_t filled = 0;
  for (const Piece* each : pieces_[{parameter.name(), kept}]) {
    const Piece& piece = *each;
    const ParameterSpec& spec = parameter.spec();
    if (piece.shape != spec.shape || piece.dimension != spec.cut_dimension ||
        piece.parts != spec.parts) {
      throw DataError(fmt::format(
          "{}: {} has shape {} in {} parts along {}, and this model's has {} in {} along {}",
          directory_.string(), piece.tensor, piece.shape.to_string(), piece.parts, piece.dimension,
          spec.shape.to_string(), spec.parts, spec.cut_dimension));
    }
    filled += copy_overlap(file(piece.file), piece, parameter, start, local);
  }
  std::int64_t expected = 0;
  parameter.for_each_run_in(start, stop,
                            [&](auto, auto, std::int64_t length) { expected += length; });
  if (filled != expected) {
    throw DataError(fmt::format("{}: holds {} of the {} elements of {} ({}) that are needed",
                                directory_.string(), filled, expected, parameter.name(),
                                name_of(kept)));
  }
  return local;
}

void Checkpoint::load(RankContext& rank, ParameterStore& store) {
  const int moments = store.options().moments;
  for (const Parameter& parameter : store.parameters()) {
    for (std::size_t kept = 0; kept <= static_cast<std::size_t>(moments); ++kept) {
      in_pieces(parameter, [&](std::int64_t start, std::int64_t stop) {
        set_kept(rank, parameter, kAllKept[kept], read(parameter, kAllKept[kept], start, stop),
                 start);
      });
    }
  }
}

std::unique_ptr<Checkpoint> newest_whole(const fs::path& run, std::vector<std::string>& skipped) {
  const fs::path folder = CheckpointFolder(run).path();
  std::error_code problem;
  fs::directory_iterator(folder, problem);
  if (problem && problem != std::errc::no_such_file_or_directory &&
      problem != std::errc::not_a_directory) {  // these say that there are none
    throw DataError(
        fmt::format("{}: cannot be read: {}. Make it readable, or write "
                    "checkpoint.resume: never to start afresh.",
                    folder.string(), problem.message()));
  }
  for (const fs::path& directory : CheckpointFolder(run).candidates()) {
    try {
      auto checkpoint = std::make_unique<Checkpoint>(directory);
      checkpoint->check_whole();
      return checkpoint;
    } catch (const DataError& error) {
      skipped.push_back(error.what());
    }
  }
  if (!skipped.empty()) {
    throw DataError(fmt::format(
        "{}: none of its checkpoints can be read, the newest: {}. Remove them, or write "
        "checkpoint.resume: never to start afresh.",
        run.string(), skipped.front()));
  }
  return nullptr;
}

void set_kept(RankContext& rank, const Parameter& parameter, Kept kept,
              const std::vector<double>& values, std::int64_t start) {
  if (kept == Kept::kMaster) {
    set_master(*rank.device, *rank.compute, parameter, std::span<const double>(values), start);
    return;
  }
  const std::int64_t stop = start + std::ssize(values);
  for (const ParameterShard& shard : parameter.shards) {
    const std::int64_t first = std::max(start, shard.start), last = std::min(stop, shard.stop());
    if (first < last) {
      set_tensor(*rank.device, *rank.compute, tensor_of(shard, kept),
                 std::span(values).subspan(static_cast<std::size_t>(first - start),
                                           static_cast<std::size_t>(last - first)),
                 first - shard.start);
    }
  }
}

void check_weights(const fs::path& path, const std::vector<ParameterSpec>& parameters) {
  const SafetensorsFile file(path);
  std::set<std::string> known;
  for (const ParameterSpec& spec : parameters) {
    const auto& entry = file.find(spec.name);
    if (entry.shape != sizes_of(spec.shape)) {
      throw DataError(fmt::format("{}: '{}' has shape [{}], and this model's has {}", path.string(),
                                  spec.name, fmt::join(entry.shape, ", "), spec.shape.to_string()));
    }
    known.insert(spec.name);
  }
  for (const auto& [name, entry] : file.entries()) {
    if (known.count(name) == 0) {
      throw DataError(
          fmt::format("{}: has a tensor '{}' that this model lacks", path.string(), name));
    }
  }
}

void import_weights(const fs::path& path, RankContext& rank, ParameterStore& store) {
  const SafetensorsFile file(path);
  for (const Parameter& parameter : store.parameters()) {
    in_pieces(parameter, [&](std::int64_t start, std::int64_t stop) {
      std::vector<double> local(static_cast<std::size_t>(stop - start), 0.0);
      parameter.for_each_run_in(
          start, stop, [&](std::int64_t to, std::int64_t from, std::int64_t length) {
            file.read(parameter.name(), from, length, local.data() + (to - start));
          });
      set_kept(rank, parameter, Kept::kMaster, local, start);
    });
  }
}

void export_weights(Checkpoint& checkpoint, const std::vector<ParameterSpec>& parameters,
                    const fs::path& path) {
  std::vector<std::vector<float>> memory;
  std::vector<SafetensorsItem> items;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter whole(parameters[i], Layout{1, 1, 0}, static_cast<std::uint32_t>(i));
    const std::vector<double> values =
        checkpoint.read(whole, Kept::kMaster, 0, whole.local_shape().numel());
    memory.emplace_back(values.begin(), values.end());
    items.push_back({.name = whole.name(),
                     .dtype = DType::kF32,
                     .shape = sizes_of(whole.spec().shape),
                     .data = {std::as_bytes(std::span(memory.back()))}});
  }
  const fs::path beside = path.string() + ".unfinished";
  std::error_code problem, ignored;
  try {
    write_safetensors(
        beside, items,
        {{"format", "pt"}, {"step", std::to_string(checkpoint.manifest().progress.step)}});
  } catch (const DataError&) {
    fs::remove(beside, ignored);
    throw;
  }
  fs::rename(beside, path, problem);
  if (problem) {
    fs::remove(beside, ignored);
    throw DataError(path.string() + ": cannot be written: " + problem.message());
  }
}

}  // namespace tandem
