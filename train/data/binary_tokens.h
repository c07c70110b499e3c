// Token files that people bring: llm.c shards, Megatron-LM's indexed pairs, NumPy arrays, and bare
// 16-bit tokens as nanoGPT writes them. All are runs of integers in files; they differ in what
// stands before the integers and in what is known of documents.
//
// A file's structure is checked when it is opened, without looking at its tokens, so a file of any
// size opens at once; ids are checked as they are read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/data/data_file.h"
#include "train/data/token_store.h"

namespace tandem {

/// How a file spells an integer.
struct ItemType {
  int bytes = 2;  ///< 1, 2, 4 or 8
  bool is_signed = false;
  bool big_endian = false;
};

class BinaryTokens final : public TokenStore {
 public:
  /// Tokens [0, count) of one file, from byte `offset` on.
  struct Run {
    std::unique_ptr<DataFile> file;
    ItemType type;
    std::int64_t offset = 0;
    std::int64_t count = 0;
  };

  /// `starts`: of documents, ending in the number of tokens; empty: each file is a document.
  BinaryTokens(std::string name, std::vector<Run> runs, std::vector<std::int64_t> starts = {});

  std::span<const std::int64_t> document_starts() const override { return starts_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  std::string name() const override { return name_; }
  std::string place(std::int64_t index) const override;

 private:
  std::size_t run_of(std::int64_t index) const;

  std::string name_;
  std::vector<Run> runs_;
  std::vector<std::int64_t> first_;  ///< token of each run, then the number of tokens
  std::vector<std::int64_t> starts_;
};

// Each throws DataError with the file, what was expected and what was found.

/// https://github.com/karpathy/llm.c: `pattern` is a file or a glob, whose files are joined in
/// order of name. GPT-2 shards (16 bits) and Llama 3 shards (32 bits).
std::unique_ptr<TokenStore> open_llmc(const std::string& pattern);
/// Megatron-LM's `prefix`.idx and `prefix`.bin (the name of either does as well), with documents.
std::unique_ptr<TokenStore> open_megatron(const std::string& prefix);
/// One-dimensional integers, formats 1.0 to 3.0, both byte orders.
std::unique_ptr<TokenStore> open_npy(const std::string& path);
/// Little-endian 16-bit tokens and nothing else.
std::unique_ptr<TokenStore> open_raw_u16(const std::string& path);

}  // namespace tandem
