#include "train/roof.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/philox.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

class DeviceMatrix {
  static constexpr std::int64_t kPiece = (1 << 20) - 3;  // not a multiple of any row

 public:
  DeviceMatrix(Device& device, Stream& stream, DType dtype, std::int64_t rows, std::int64_t columns)
      : device_(device),
        tensor(device.allocate(static_cast<std::size_t>(rows * columns) * size_of(dtype)), dtype,
               {rows, columns}) {
    // Random enough for matrix units, whose speed depends on how often bits change: a piece that
    // repeats.
    visit_floating(dtype, [&](auto type) {
      const std::int64_t piece = std::min(tensor.numel(), kPiece);
      std::vector<decltype(type)> host(static_cast<std::size_t>(piece));
      for (std::size_t i = 0; i < host.size(); i += 4) {
        const PhiloxBlock draws = philox_draw(1, RandomUse::kSynthetic, 0, i / 4);
        for (std::size_t j = 0; j < 4 && i + j < host.size(); ++j) {
          host[i + j] =
              static_cast<decltype(type)>(static_cast<float>(draws.x[j]) * 0x1p-31f - 1.0f);
        }
      }
      const Tensor from(host.data(), dtype, {piece});
      for (std::int64_t start = 0; start < tensor.numel(); start += piece) {
        const std::int64_t count = std::min(piece, tensor.numel() - start);
        device.copy(stream, from.first(count), tensor.flat().slice(0, start, count));
      }
      stream.synchronize();
    });
  }
  ~DeviceMatrix() { device_.deallocate(tensor.data); }
  DeviceMatrix(const DeviceMatrix&) = delete;
  DeviceMatrix& operator=(const DeviceMatrix&) = delete;

 private:
  Device& device_;

 public:
  const Tensor tensor;
};

nlohmann::json read_cache(const fs::path& file) {
  std::ifstream in(file);
  const auto cache = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  return cache.is_object() ? cache : nlohmann::json::object();
}

/// The cache is a convenience: where it cannot be written the next run measures again.
void write_cache(const fs::path& file, const nlohmann::json& cache) {
  std::error_code ignored;
  fs::create_directories(file.parent_path(), ignored);
  const fs::path beside = file.string() + fmt::format(".{}", ::getpid());
  if (std::ofstream out(beside); out << cache.dump(1) << '\n') {
    out.close();
    fs::rename(beside, file, ignored);
  }
}

double measure(Device& device, DType storage, int repeats) {
  const auto stream = device.make_stream("roof");
  double best = 0.0;
  for (const bool transpose_b : {true, false}) {
    const MatmulShape shape = {1024, 1024, 1024, false, transpose_b};
    best = std::max(best, matmul_rate(device, *stream, storage, shape, repeats));
  }
  return best;
}

}  // namespace

fs::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "tandem";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return fs::path(home) / ".cache" / "tandem";
  }
  return {};
}

class MatmulTimer::Matrices {
 public:
  Matrices(Device& device, Stream& stream, DType storage, const MatmulShape& shape)
      : a(device, stream, storage, shape.transpose_a ? shape.k : shape.m,
          shape.transpose_a ? shape.m : shape.k),
        b(device, stream, storage, shape.transpose_b ? shape.n : shape.k,
          shape.transpose_b ? shape.k : shape.n),
        c(device, stream, storage, shape.m, shape.n) {}

  const DeviceMatrix a, b, c;
};

MatmulTimer::MatmulTimer(Device& device, Stream& stream, DType storage, const MatmulShape& shape)
    : device_(device),
      stream_(stream),
      shape_(shape),
      matrices_(std::make_unique<Matrices>(device, stream, storage, shape)) {}

MatmulTimer::~MatmulTimer() = default;

double MatmulTimer::flops() const {
  return 2.0 * static_cast<double>(shape_.m) * static_cast<double>(shape_.n) *
         static_cast<double>(shape_.k);
}

double MatmulTimer::seconds() const {
  // The host's part in a launch is hidden behind the one before it.
  const int queued = device_.host_memory() ? 1 : 10;
  const auto start = std::chrono::steady_clock::now();
  for (int q = 0; q < queued; ++q) {
    device_.gemm(stream_, {.a = matrices_->a.tensor,
                           .b = matrices_->b.tensor,
                           .c = matrices_->c.tensor,
                           .transpose_a = shape_.transpose_a,
                           .transpose_b = shape_.transpose_b});
  }
  stream_.synchronize();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / queued;
}

double matmul_rate(Device& device, Stream& stream, DType storage, const MatmulShape& shape,
                   int repeats) {
  const MatmulTimer timer(device, stream, storage, shape);
  timer.seconds();
  double best = timer.seconds();
  for (int i = 1; i < repeats; ++i) {
    best = std::min(best, timer.seconds());
  }
  return timer.flops() / best;
}

double device_roof(Device& device, DType storage) {
  constexpr std::int64_t kLargest = 8192;
  constexpr double kLongEnough = 1e-3;  // seconds
  const auto stream = device.make_stream("roof");
  double roof = 0.0;
  for (std::int64_t n = 512; n <= kLargest; n *= 2) {
    const auto bytes = 3 * static_cast<std::size_t>(n * n) * size_of(storage);
    if (n > 512 && bytes > device.free_memory() / 4) {
      break;
    }
    const double rate = matmul_rate(device, *stream, storage, {n, n, n, false, true}, 5);
    roof = std::max(roof, rate);
    if (2.0 * static_cast<double>(n * n * n) / rate > kLongEnough) {
      break;
    }
  }
  return roof;
}

std::optional<double> datasheet_tflops(std::string_view description, DType storage) {
  struct Row {
    std::string_view name;
    double tensor_cores;  ///< bf16 and fp16, dense
  };
  // Names as the driver gives them; a longer one stands before one that it contains.
  constexpr std::array kSheets = {
      Row{"H100 PCIe", 756.0}, Row{"H100 NVL", 835.0}, Row{"H100", 989.4}, Row{"H200", 989.4},
      Row{"H20", 148.0},       Row{"GH200", 989.4},    Row{"A100", 312.0}, Row{"A800", 312.0}};
  if (storage != DType::kBF16 && storage != DType::kF16) {
    return std::nullopt;
  }
  const auto row = std::find_if(kSheets.begin(), kSheets.end(), [&](const Row& sheet) {
    return description.find(sheet.name) != std::string_view::npos;
  });
  return row == kSheets.end() ? std::nullopt : std::optional(row->tensor_cores);
}

double host_roof(DType storage, int cpus) {
  const std::unique_ptr<Device> device = make_cpu_device(cpus);
  const std::string key =
      fmt::format("{} | {} | {} CPUs", device->describe(), name_of(storage), cpus);
  const fs::path folder = cache_folder();
  const fs::path file = folder.empty() ? fs::path() : folder / "roof.json";
  nlohmann::json cache = file.empty() ? nlohmann::json::object() : read_cache(file);
  const auto found = cache.find(key);
  const double known =
      found != cache.end() && found->is_number() ? found->get<double>() * 1e9 : 0.0;
  // A roof that was measured on a busy machine would stay too low for ever: a quick look each time
  // finds out.
  const int repeats = known == 0.0 ? 5 : 1;
  double roof = std::max(known, measure(*device, storage, repeats));
  if (storage != DType::kF32) {
    // Where the processor has no units for the type, matmuls of floats are the roof.
    roof = std::max(roof, measure(*device, DType::kF32, repeats));
  }
  if (!file.empty() && roof > known) {
    cache[key] = roof / 1e9;  // GFLOP/s
    write_cache(file, cache);
  }
  return roof;
}

}  // namespace tandem
