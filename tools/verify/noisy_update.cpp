#include "tools/verify/noisy_update.h"

#include <algorithm>

#include "core/philox.h"
#include "tools/verify/forwarding_device.h"
#include "tools/verify/host_values.h"

namespace tandem::verify {

namespace {

class NoisyUpdate final : public ForwardingDevice {
 public:
  NoisyUpdate(std::unique_ptr<Device> inner, GradientNoise noise, std::uint64_t seed,
              std::function<const TrainState*()> state)
      : ForwardingDevice(*inner),
        owned_(std::move(inner)),
        noise_(std::move(noise)),
        seed_(seed),
        state_(std::move(state)) {}

  void adamw(Stream& stream, const AdamW& args) override {
    disturb(stream, args.grad);
    inner().adamw(stream, args);
  }
  void sgd(Stream& stream, const Sgd& args) override {
    disturb(stream, args.grad);
    inner().sgd(stream, args);
  }

 private:
  void disturb(Stream& stream, const Tensor& range) {
    for (const Parameter& parameter : state_()->store.parameters()) {
      const Tensor gradient = parameter.main_grad;
      if (gradient.data < range.data || gradient.data >= range.data + range.bytes()) {
        continue;
      }
      std::vector<double> values = read_values(inner(), stream, gradient);
      const double deviation = noise_.at(parameter.name());
      for (std::size_t i = 0; i < values.size(); i += 4) {
        const auto normal = philox_normals(seed_, RandomUse::kSynthetic, 2, draws_++);
        for (std::size_t j = i; j < std::min(i + 4, values.size()); ++j) {
          // A zero had no contributions, so nothing was rounded.
          values[j] += values[j] == 0.0 ? 0.0 : deviation * normal[j - i];
        }
      }
      write_values(inner(), stream, gradient, values);
    }
  }

  std::unique_ptr<Device> owned_;
  GradientNoise noise_;
  std::uint64_t seed_;
  std::function<const TrainState*()> state_;
  std::uint64_t draws_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_noisy_update(std::unique_ptr<Device> inner, GradientNoise noise,
                                          std::uint64_t seed,
                                          std::function<const TrainState*()> state) {
  return std::make_unique<NoisyUpdate>(std::move(inner), std::move(noise), seed, std::move(state));
}

}  // namespace tandem::verify
