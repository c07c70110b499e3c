// Bytes of a llm.c token shard, for those who read them and who write them: 256 little-endian
// int32 of which three are used (magic, version, number of tokens), then the tokens.
// https://github.com/karpathy/llm.c
#pragma once

#include <cstdint>

namespace tandem {

struct LlmcKind {
  std::int32_t magic;
  std::int32_t version;
  int token_bytes;
};

inline constexpr LlmcKind kLlmcGpt2 = {20240520, 1, 2};
inline constexpr LlmcKind kLlmcLlama3 = {20240801, 7, 4};
/// Begins a file of evaluation examples, which has another layout.
inline constexpr std::int32_t kLlmcEvaluation = 20240522;
inline constexpr std::int64_t kLlmcHeader = 1024;  ///< bytes

}  // namespace tandem
