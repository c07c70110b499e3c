#include "train/checkpoint/manifest.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <iterator>

#include "core/error.h"

namespace tandem {

namespace {

constexpr int kVersion = 1;
/// A manifest of a million pieces has some 300 MB.
constexpr std::uintmax_t kLargest = 1u << 30;
/// Far beyond any run, far from where sums of 64 bits overflow.
constexpr std::int64_t kMostSamples = std::int64_t{1} << 53;
/// {pieces: [{shape: [n]}]}: nothing lies deeper.
constexpr int kDeepest = 4;

/// Reads one manifest and says what is wrong with it and where.
class Reader {
 public:
  explicit Reader(std::filesystem::path path) : path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(path_.string() + ": " + what);
  }

  nlohmann::json parse() const {
    std::error_code problem;
    const std::uintmax_t size = std::filesystem::file_size(path_, problem);
    if (problem) {
      refuse("cannot be read: " + problem.message());
    }
    if (size > kLargest) {
      refuse(fmt::format("has {} bytes; no manifest is that long", size));
    }
    std::ifstream in(path_, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (!in && !in.eof()) {
      refuse("cannot be read");
    }
    try {
      return nlohmann::json::parse(text, [&](int depth, auto event, auto&) {
        using Event = nlohmann::json::parse_event_t;
        if (depth >= kDeepest && (event == Event::object_start || event == Event::array_start)) {
          refuse("is nested deeper than a manifest is");
        }
        return true;
      });
    } catch (const nlohmann::json::exception& error) {
      refuse(fmt::format("is not JSON, or is cut off ({})", error.what()));
    }
  }

  const nlohmann::json& field(const nlohmann::json& json, const char* key) const {
    const auto found = json.is_object() ? json.find(key) : json.end();
    if (!json.is_object() || found == json.end()) {
      refuse(fmt::format("has no '{}' where one is expected", key));
    }
    return *found;
  }
  std::int64_t count(const nlohmann::json& json, const char* key, std::int64_t least) const {
    const nlohmann::json& value = field(json, key);
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) ||
        value.get<std::int64_t>() < least) {
      refuse(fmt::format("'{}' is {}, not an integer of {} or more", key, value.dump(), least));
    }
    return value.get<std::int64_t>();
  }
  std::string text(const nlohmann::json& json, const char* key) const {
    const nlohmann::json& value = field(json, key);
    if (!value.is_string()) {
      refuse(fmt::format("'{}' is {}, not a text", key, value.dump()));
    }
    return value.get<std::string>();
  }

  std::optional<LossScale> loss_scale(const nlohmann::json& json) const {
    if (!json.contains("loss_scale")) {
      return std::nullopt;
    }
    const nlohmann::json& value = field(json, "loss_scale");
    const double scale = value.is_number() ? value.get<double>() : 0.0;
    if (!(scale >= 1.0) || !std::isfinite(scale)) {
      refuse(fmt::format("'loss_scale' is {}, not a number of 1 or more", value.dump()));
    }
    return LossScale{scale, count(json, "clean_steps", 0)};
  }

  Piece piece(const nlohmann::json& json) const {
    Piece piece{
        .file = text(json, "file"), .key = text(json, "key"), .tensor = text(json, "tensor")};
    if (piece.file.find('/') != std::string::npos || piece.file.empty()) {
      refuse(fmt::format("names a file '{}' outside its directory", piece.file));
    }
    const std::string kept = text(json, "state");
    const auto known =
        std::find_if(kAllKept.begin(), kAllKept.end(), [&](Kept k) { return kept == name_of(k); });
    if (known == kAllKept.end()) {
      refuse(fmt::format("'state' is '{}', not master, exp_avg or exp_avg_sq", kept));
    }
    piece.kept = *known;
    const nlohmann::json& shape = field(json, "shape");
    if (!shape.is_array() || shape.empty() || shape.size() > kMaxRank) {
      refuse(fmt::format("'shape' is {}, not a list of 1 to {} sizes", shape.dump(), kMaxRank));
    }
    std::vector<std::int64_t> sizes;
    std::int64_t elements = 1;
    for (const auto& size : shape) {
      // Nor is any size 0, beside which the others' product would be anything.
      if (!size.is_number_unsigned() || size == 0 || size.get<std::uint64_t>() > INT64_MAX ||
          __builtin_mul_overflow(elements, size.get<std::int64_t>(), &elements)) {
        refuse(fmt::format("'shape' is {}, which no tensor has", shape.dump()));
      }
      sizes.push_back(size.get<std::int64_t>());
    }
    piece.shape = sizes.size() == 1   ? Shape{sizes[0]}
                  : sizes.size() == 2 ? Shape{sizes[0], sizes[1]}
                  : sizes.size() == 3 ? Shape{sizes[0], sizes[1], sizes[2]}
                                      : Shape{sizes[0], sizes[1], sizes[2], sizes[3]};
    piece.dimension =
        static_cast<int>(std::min<std::int64_t>(count(json, "dimension", -1), kMaxRank));
    piece.part = count(json, "part", 0);
    piece.parts = count(json, "parts", 1);
    piece.start = count(json, "start", 0);
    piece.stop = count(json, "stop", 0);
    const bool cut = piece.dimension >= 0;
    const std::int64_t size = !cut                                   ? 1
                              : piece.dimension < piece.shape.rank() ? piece.shape[piece.dimension]
                                                                     : -1;
    if (size < 0 || piece.part >= piece.parts || (cut && size % piece.parts != 0) ||
        piece.start > piece.stop || piece.stop > (cut ? size / piece.parts : 1)) {
      refuse(
          fmt::format("the piece '{}' in '{}' lies outside its tensor: part {} of {}, {} to {} of "
                      "dimension {} of {}",
                      piece.key, piece.file, piece.part, piece.parts, piece.start, piece.stop,
                      piece.dimension, shape.dump()));
    }
    // Without them the piece is the whole box.
    const std::int64_t elements_of_box = piece.outer() * piece.row();
    piece.flat_start = json.contains("flat_start") ? count(json, "flat_start", 0) : 0;
    piece.flat_stop = json.contains("flat_stop") ? count(json, "flat_stop", 0) : elements_of_box;
    if (piece.flat_start >= piece.flat_stop || piece.flat_stop > elements_of_box) {
      refuse(fmt::format("the piece '{}' in '{}' has elements {} to {} of {}", piece.key,
                         piece.file, piece.flat_start, piece.flat_stop, elements_of_box));
    }
    return piece;
  }

 private:
  std::filesystem::path path_;
};

nlohmann::ordered_json to_json(const Piece& piece) {
  auto shape = nlohmann::ordered_json::array();
  for (int i = 0; i < piece.shape.rank(); ++i) {
    shape.push_back(piece.shape[i]);
  }
  nlohmann::ordered_json json = {{"file", piece.file},     {"key", piece.key},
                                 {"tensor", piece.tensor}, {"state", name_of(piece.kept)},
                                 {"shape", shape},         {"dimension", piece.dimension},
                                 {"part", piece.part},     {"parts", piece.parts},
                                 {"start", piece.start},   {"stop", piece.stop}};
  if (!piece.is_box()) {
    json["flat_start"] = piece.flat_start;
    json["flat_stop"] = piece.flat_stop;
  }
  return json;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  nlohmann::ordered_json json = {{"version", kVersion},
                                 {"step", manifest.progress.step},
                                 {"consumed_samples", manifest.progress.consumed_samples},
                                 {"skipped_steps", manifest.progress.skipped_steps},
                                 {"non_finite_in_a_row", manifest.progress.non_finite_in_a_row},
                                 {"layout", {{"tp", manifest.tp}, {"dp", manifest.dp}}},
                                 {"moments", manifest.moments},
                                 {"config", manifest.config},
                                 {"pieces", nlohmann::ordered_json::array()}};
  if (const auto& scale = manifest.progress.loss_scale) {
    json["loss_scale"] = scale->value;
    json["clean_steps"] = scale->clean_steps;
  }
  for (const Piece& piece : manifest.pieces) {
    json["pieces"].push_back(to_json(piece));
  }
  return json.dump(1) + "\n";
}

Manifest read_manifest(const std::filesystem::path& directory) {
  const Reader reader(directory / kManifestName);
  const nlohmann::json json = reader.parse();
  if (const std::int64_t version = reader.count(json, "version", 0); version != kVersion) {
    reader.refuse(fmt::format("has version {}; this program reads version {}", version, kVersion));
  }
  Manifest manifest;
  manifest.progress = {.step = reader.count(json, "step", 0),
                       .consumed_samples = reader.count(json, "consumed_samples", 0),
                       .skipped_steps = reader.count(json, "skipped_steps", 0),
                       .non_finite_in_a_row = reader.count(json, "non_finite_in_a_row", 0),
                       .loss_scale = reader.loss_scale(json)};
  const Progress& progress = manifest.progress;
  if (progress.skipped_steps > progress.step ||
      progress.non_finite_in_a_row > progress.skipped_steps ||
      progress.consumed_samples > kMostSamples) {
    reader.refuse(
        fmt::format("says {} of {} steps were skipped, {} in a row, and {} samples "
                    "consumed, which no run does",
                    progress.skipped_steps, progress.step, progress.non_finite_in_a_row,
                    progress.consumed_samples));
  }
  const nlohmann::json& layout = reader.field(json, "layout");
  manifest.tp = static_cast<int>(std::min<std::int64_t>(reader.count(layout, "tp", 1), INT32_MAX));
  manifest.dp = static_cast<int>(std::min<std::int64_t>(reader.count(layout, "dp", 1), INT32_MAX));
  manifest.moments = static_cast<int>(std::min<std::int64_t>(reader.count(json, "moments", 0), 3));
  if (manifest.moments > 2) {
    reader.refuse("'moments' is above 2, which no optimizer has");
  }
  manifest.config = reader.text(json, "config");
  const nlohmann::json& pieces = reader.field(json, "pieces");
  if (!pieces.is_array()) {
    reader.refuse("'pieces' is not a list");
  }
  for (const nlohmann::json& piece : pieces) {
    manifest.pieces.push_back(reader.piece(piece));
  }
  return manifest;
}

}  // namespace tandem
