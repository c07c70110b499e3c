// One program of libFuzzer for each target, named by TANDEM_FUZZ_TARGET.
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tandem::fuzz::TANDEM_FUZZ_TARGET({data, size});
  return 0;
}
