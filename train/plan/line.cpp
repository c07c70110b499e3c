#include "train/plan/line.h"

#include <fmt/format.h>

#include "train/console.h"
#include "train/plan/predict.h"

namespace tandem {

std::string plan_line(const Config& config, DeviceKind device, DType storage) {
  if (device == DeviceKind::kCuda) {
    return "build/plan --hardware h100 (or h200, a100, a file) predicts steps on GPUs";
  }
  try {
    const Hardware hardware = load_hardware("", storage);
    const Prediction layout = predict(config, hardware, SampledRows(config).counts(config));
    return fmt::format(
        "{:.3g} ms a step (+- {:.0f} %), {:.3g} ms of it exposed, {} tokens/s: on {}",
        layout.time.total() * 1e3, hardware.uncertainty * 100.0, layout.time.exposed() * 1e3,
        short_number(layout.tokens_per_s()), hardware.name);
  } catch (const ConfigError& error) {
    return std::string("no prediction: ") + error.what();
  }
}

}  // namespace tandem
