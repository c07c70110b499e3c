// Checkpoints: headers of safetensors files with the tensors behind them, and manifests beside
// files that exist.
#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/safetensors.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"
#include "train/checkpoint/load.h"

namespace tandem::fuzz {

void take_safetensors(Bytes bytes) {
  static MemoryFile memory;
  memory.set(bytes);
  try {
    const SafetensorsFile file(memory.path());
    for (const auto& [name, entry] : file.entries()) {
      ensure(entry.begin <= entry.end && entry.end <= bytes.size(), "a tensor outside its file");
      // 0 if any size is 0: products of the others may not fit.
      const bool empty = std::count(entry.shape.begin(), entry.shape.end(), 0) > 0;
      const std::int64_t count = empty ? 0
                                       : std::accumulate(entry.shape.begin(), entry.shape.end(),
                                                         std::int64_t{1}, std::multiplies<>());
      std::vector<double> values(static_cast<std::size_t>(count));
      try {
        file.read(name, 0, count, values.data());
      } catch (const DataError&) {  // no floating type
      }
    }
  } catch (const DataError&) {
  }
}

void take_manifest(Bytes bytes) {
  // A checkpoint whose only file holds a [2, 3] and b [4], so that pieces can fit.
  struct Folder {
    Folder() {
      const std::vector<float> values(6);
      const auto data = std::as_bytes(std::span(values));
      write_safetensors(links.path() / "rank_00000.safetensors",
                        {{.name = "a", .shape = {2, 3}, .data = {data}},
                         {.name = "b", .shape = {4}, .data = {data.first(4 * sizeof(float))}}});
      links.link(kManifestName, manifest);
    }
    LinkFolder links;
    MemoryFile manifest;
  };
  static Folder folder;
  folder.manifest.set(bytes);
  try {
    Checkpoint checkpoint(folder.links.path());
    const std::string text = to_json(checkpoint.manifest());
    checkpoint.check_whole();
    folder.manifest.set({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
    ensure(to_json(read_manifest(folder.links.path())) == text,
           "a manifest that does not read back as itself");
  } catch (const DataError&) {
  }
}

}  // namespace tandem::fuzz
