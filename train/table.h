// A table of what is called what, as the start-up table is.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tandem {

/// Rows of "label  value" under a title.
struct Table {
  std::string title;
  std::vector<std::pair<std::string, std::string>> rows;
};

}  // namespace tandem
