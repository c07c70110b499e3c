// How every program's --help looks: 80 columns, options beside what they do, examples last.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tandem {

/// `examples`: command lines that work as they stand, of at most 78 columns.
void shape_help(CLI::App& app, const std::vector<std::string>& examples);

}  // namespace tandem
