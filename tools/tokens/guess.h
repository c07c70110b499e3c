// Which data.format a file is in, where its first bytes tell.
#pragma once

#include <string>

#include "train/config.h"

namespace tandem {

/// A path, prefix or glob as in data.path. Formats with a magic number are known by it; what has
/// none and looks like UTF-8 text is text. Throws DataError for anything else: bare 16-bit tokens
/// cannot be told from other bytes.
DataFormat guess_format(const std::string& path);

}  // namespace tandem
