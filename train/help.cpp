#include "train/help.h"

#include <CLI/CLI.hpp>

#include <memory>
#include <sstream>

namespace tandem {

namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kOptionWidth = 24;  ///< of the column with the options' names

/// `text` in lines of at most `width`.
std::string wrapped(const std::string& text, std::size_t width) {
  std::string lines, word;
  std::size_t used = 0;
  std::istringstream words(text);
  while (words >> word) {
    const bool fits = used == 0 || used + 1 + word.size() <= width;
    lines += used == 0 ? "" : fits ? " " : "\n";
    used = fits && used > 0 ? used + 1 + word.size() : word.size();
    lines += word;
  }
  return lines;
}

class NarrowFormatter : public CLI::Formatter {
 public:
  NarrowFormatter() { column_width(kOptionWidth); }

 private:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string& type = option->get_type_name();
    return (type.empty() ? "" : " " + type) + (option->get_expected_max() > 1 ? " ..." : "");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped((option->get_required() ? "(required) " : "") + option->get_description(),
                   kWidth - kOptionWidth);
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), kWidth) + "\n";
  }
};

}  // namespace

void shape_help(CLI::App& app, const std::vector<std::string>& examples) {
  app.formatter(std::make_shared<NarrowFormatter>());
  app.set_help_flag("-h,--help", "print this and exit");
  std::string footer = "Examples:";
  for (const std::string& example : examples) {
    footer += "\n  " + example;
  }
  app.footer(footer);
}

}  // namespace tandem
