// The config: what is accepted reads back as itself.
#include "train/config.h"

#include <string_view>

#include "core/error.h"
#include "tests/fuzz/targets.h"

namespace tandem::fuzz {

void take_config(Bytes bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    const Config config = parse_config(text, {.file = "fuzz.yaml"});
    ensure(parse_config(to_yaml(config), {.file = "fuzz.yaml"}) == config,
           "a config that does not read back as itself");
  } catch (const ConfigError&) {
  }
}

}  // namespace tandem::fuzz
