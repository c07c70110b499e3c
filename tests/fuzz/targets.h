// What our readers must take: any bytes at all. Each target hands the bytes to one reader and
// returns where it accepts them or refuses them in its own words; anything else (another exception,
// a broken promise, a sanitizer's report) ends the process. libFuzzer calls them with what it
// makes up (scripts/fuzz.sh), corpus_test.cpp with the seeds and with what was once found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem::fuzz {

using Bytes = std::span<const std::uint8_t>;

struct Target {
  const char* name;  ///< its folder in corpus/
  void (*take)(Bytes);
};

void take_config(Bytes bytes);
void take_manifest(Bytes bytes);
void take_safetensors(Bytes bytes);
void take_text(Bytes bytes);
void take_llmc(Bytes bytes);
/// The first two bytes say how many of the others are the index.
void take_megatron(Bytes bytes);
void take_npy(Bytes bytes);
void take_raw_u16(Bytes bytes);

inline constexpr Target kTargets[] = {
    {"config", take_config}, {"manifest", take_manifest}, {"safetensors", take_safetensors},
    {"text", take_text},     {"llmc", take_llmc},         {"megatron", take_megatron},
    {"npy", take_npy},       {"raw_u16", take_raw_u16},
};

}  // namespace tandem::fuzz
