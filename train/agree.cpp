#include "train/agree.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

void agree(Communicator& control, const std::function<void()>& check) {
  std::string problem;
  std::int64_t code = 0;
  try {
    check();  // HelpRequested passes: every rank has the same command line
  } catch (const std::exception& error) {
    problem = error.what();
    code = static_cast<std::int64_t>(exit_code_of(error));
  }
  std::vector<std::int64_t> codes(static_cast<std::size_t>(control.size()));
  control
      .all_gather(Tensor(&code, DType::kI64, {1}),
                  Tensor::of<std::int64_t>(codes, {control.size()}),
                  {.label = "agreement on errors"})
      .wait_host();
  const auto reporter = std::max_element(codes.begin(), codes.end());  // the first of the worst
  if (*reporter == 0) {
    return;
  }
  if (reporter - codes.begin() == control.index()) {
    throw Agreed(static_cast<ExitCode>(code), problem);
  }
  throw Silenced(static_cast<ExitCode>(*reporter));
}

}  // namespace tandem
