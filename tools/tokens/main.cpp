// tokens: what a data file holds; and a llm.c shard made of a text.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "core/error.h"
#include "tools/tokens/findings.h"
#include "tools/tokens/guess.h"
#include "tools/tokens/shard.h"
#include "train/config_schema.h"
#include "train/data/source.h"
#include "train/help.h"

namespace tandem {
namespace {

struct Line {
  std::string path;
  std::string format;  ///< empty: guessed
  std::string output;  ///< empty: none
};

/// Returns false if help was asked for, and given.
bool parse(int argc, const char* const* argv, Line& line) {
  CLI::App app(
      "Prints what a data file holds: its format, documents, tokens and ids, and what is wrong "
      "with it. With --output it also writes the tokens as a llm.c shard.",
      "tokens");
  app.add_option("path", line.path,
                 "a file, a Megatron-LM prefix, or a quoted glob of llm.c shards: what data.path "
                 "takes")
      ->required()
      ->type_name("PATH");
  app.add_option("--format", line.format,
                 "text | llmc | megatron | npy | raw_u16; told from the first bytes where they "
                 "tell it")
      ->type_name("FORMAT");
  app.add_option("-o,--output", line.output,
                 "write the tokens to this new file, 16 bits each where all ids fit, else 32")
      ->type_name("SHARD");
  shape_help(app, {"build/tokens 'data/fineweb_train_*.bin'",
                   "build/tokens data/kjv.txt --output data/kjv.bin"});
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& problem) {
    throw ConfigError(std::string(problem.what()) + "\nSee tokens --help.");
  }
  return true;
}

/// By the word that data.format has for it.
DataFormat format_named(const std::string& word) {
  Config config;
  const yaml::Node node{.kind = yaml::Kind::kScalar, .text = word};
  find_key("data.format")->read({.where = "--format", .key = "data.format", .node = node}, config);
  if (config.data.format == DataFormat::kSynthetic) {
    throw ConfigError("--format: synthetic tokens are in no file");
  }
  return config.data.format;
}

std::string word_of(const Config& config) { return find_key("data.format")->write(config); }

void show(const TokenStore& store, const Findings& found) {
  fmt::print("{}\n", store.name());
  if (found.documents == 0) {
    fmt::print("  documents  not marked\n");
  } else {
    fmt::print("  documents  {}, of {} to {} tokens\n", found.documents, found.shortest,
               found.longest);
  }
  fmt::print("  tokens     {}\n", found.tokens);
  fmt::print("  ids        {} to {}\n", found.least, found.most);
  fmt::print("  begins     {}{}\n", fmt::join(found.first, " "),
             found.tokens > std::ssize(found.first) ? " ..." : "");
  for (const std::string& doubt : found.doubts) {
    fmt::print("  problem    {}\n", doubt);
  }
  if (found.doubts.empty() && found.no_ids == 0) {
    fmt::print("  problems   none\n");
  }
}

/// What a config needs to read them.
void show_config(const std::string& format, const std::string& path, const Findings& found) {
  fmt::print("  config     data: {{format: {}, path: {}{}}}, model: {{vocab_size: {}}} or more\n",
             format, yaml::string_text(path), found.documents == 0 ? ", documents: packed" : "",
             std::int64_t{found.most} + 1);
}

void convert(const TokenStore& store, const Findings& found, const std::string& path) {
  write_shard(store, found.most, path);
  Config written;
  written.data = {.format = DataFormat::kLlmc, .path = path};
  const std::unique_ptr<TokenStore> shard = open_tokens(written);
  fmt::print("written: ");
  const Findings again = find_out(*shard, DataFormat::kLlmc);
  show(*shard, again);
  show_config("llmc", path, again);
}

void run(const Line& line) {
  Config config;
  config.model.vocab_size = 256;  // any byte is a token of a text
  config.data.format = line.format.empty() ? guess_format(line.path) : format_named(line.format);
  config.data.path = line.path;
  std::error_code ignored;
  if (!line.output.empty() && std::filesystem::exists(line.output, ignored)) {
    // It may be one of the files that are read: of a glob, or of a Megatron-LM pair.
    throw ConfigError("--output " + line.output +
                      ": is there already. Remove it, or name another file");
  }
  const std::unique_ptr<TokenStore> store = open_tokens(config);
  const Findings found = find_out(*store, config.data.format);
  show(*store, found);
  std::fflush(stdout);
  if (found.no_ids > 0) {
    throw DataError(fmt::format("{} tokens are no ids (below 0 or above 2147483647), the first: {}",
                                found.no_ids, store->place(*found.first_no_id)));
  }
  show_config(word_of(config), line.path, found);
  if (!line.output.empty()) {
    convert(*store, found, line.output);
  }
}

int main_with_errors(int argc, const char* const* argv) {
  try {
    Line line;
    if (parse(argc, argv, line)) {
      run(line);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::cerr << "tokens: error: " << error.what() << std::endl;
    return static_cast<int>(exit_code_of(error));
  }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::main_with_errors(argc, argv); }
