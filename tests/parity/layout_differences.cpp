// Prints the tables of docs/parity.md: how far the first step's gradients of a small language model
// are apart between layouts, for several depths, and how far each is from double precision. Not a
// test: what may differ is held by the tests of layouts.
#include <cmath>
#include <cstdio>
#include <set>

#include "tests/train/training.h"

namespace tandem::test {

namespace {

/// Of gradients by name: 2-norm of the difference over the 2-norm of `b`.
double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

Config config_of(std::int64_t layers, PrecisionChoice precision) {
  Config config = small_config();
  config.model.hidden = 64;
  config.model.ffn = 256;
  config.model.layers = layers;
  config.precision = precision;
  return config;
}

WholeTensors gradients(const Config& config, int tp, std::int64_t accumulation,
                       const DeviceFactory& make_device = one_thread_cpu) {
  return train(with_layout(config, tp, 1, accumulation), {.steps = 1, .make_device = make_device})
      .gradients;
}

/// The head, three blocks from the last to the first, the embedding: the way of the gradient.
std::vector<std::string> tensors_of(std::int64_t layers) {
  std::vector<std::string> names = {"head.weight"};
  for (const std::int64_t layer :
       std::set<std::int64_t, std::greater<>>{layers - 1, layers / 2, 0}) {
    names.push_back("layers." + std::to_string(layer) + ".fc1.weight");
    names.push_back("layers." + std::to_string(layer) + ".norm.weight");
  }
  names.emplace_back("embed.weight");
  return names;
}

void print_rows(std::int64_t layers, PrecisionChoice precision) {
  const Config config = config_of(layers, precision);
  const WholeTensors one = gradients(config, 1, 1), two = gradients(config, 2, 1),
                     four = gradients(config, 4, 1), accumulated = gradients(config, 1, 4),
                     exact = gradients(config, 1, 1, [] { return make_reference_device(1); });
  for (const std::string& name : tensors_of(layers)) {
    std::printf("| %d | `%s` |", static_cast<int>(layers), name.c_str());
    for (const auto& [a, b] :
         {std::pair{&two, &one}, std::pair{&four, &one}, std::pair{&accumulated, &one},
          std::pair{&one, &exact}, std::pair{&two, &exact}, std::pair{&four, &exact}}) {
      std::printf(" %.1e |", relative_difference(a->at(name), b->at(name)));
    }
    std::printf("\n");
  }
}

}  // namespace

}  // namespace tandem::test

int main() {
  using tandem::PrecisionChoice;
  for (const PrecisionChoice precision : {PrecisionChoice::kFp32, PrecisionChoice::kBf16}) {
    std::printf(
        "\n%s:\n\n| layers | gradient of | tp 2, tp 1 | tp 4, tp 1 | accumulated 4, 1 | "
        "tp 1, double | tp 2, double | tp 4, double |\n|---|---|---|---|---|---|---|---|\n",
        precision == PrecisionChoice::kBf16 ? "bf16" : "fp32");
    for (const std::int64_t layers : {2, 8, 24}) {
      tandem::test::print_rows(layers, precision);
    }
  }
}
