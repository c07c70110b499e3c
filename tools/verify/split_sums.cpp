#include "tools/verify/split_sums.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "tools/verify/forwarding_device.h"

namespace tandem::verify {

namespace {

/// A tensor of its own on a device.
class Scratch {
 public:
  Scratch(Device& device, DType dtype, const Shape& shape)
      : device_(&device),
        tensor_(device.allocate(std::max<std::size_t>(
                    static_cast<std::size_t>(shape.numel()) * size_of(dtype), 1)),
                dtype, shape) {}
  ~Scratch() { device_->deallocate(tensor_.data); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const Tensor& tensor() const { return tensor_; }

 private:
  Device* device_;
  Tensor tensor_;
};

class SplitSums final : public ForwardingDevice {
 public:
  SplitSums(Device& inner, int tp, std::function<const TrainState*()> state)
      : ForwardingDevice(inner), tp_(tp), state_(std::move(state)) {}

  void gemm(Stream& stream, const Gemm& args) override {
    if (!splits(args)) {
      return inner().gemm(stream, args);
    }
    const std::int64_t size = args.a.dim(1);
    in_parts(stream, args.c, size, [&](std::int64_t start, std::int64_t length, const Tensor& out) {
      Gemm part = args;
      part.a = args.a.slice(1, start, length);
      part.b = args.b.slice(args.transpose_b ? 1 : 0, start, length);
      part.c = out;
      inner().gemm(stream, part);
    });
  }
  void embedding_forward(Stream& stream, const EmbeddingForward& args) override {
    if (tp_ == 1) {
      return inner().embedding_forward(stream, args);
    }
    std::vector<std::int32_t> ids(static_cast<std::size_t>(args.ids.numel()));
    const Tensor host = Tensor::of<std::int32_t>(ids, args.ids.shape);
    inner().copy(stream, args.ids, host);
    stream.synchronize();
    in_parts(stream, args.y, args.table.dim(1),
             [&](std::int64_t start, std::int64_t length, const Tensor& out) {
               std::vector<std::int32_t> own = ids;
               for (std::int32_t& id : own) {
                 id = id >= start && id < start + length ? id : -1;
               }
               const Scratch there(inner(), DType::kI32, args.ids.shape);
               inner().copy(stream, Tensor::of<std::int32_t>(own, args.ids.shape), there.tensor());
               EmbeddingForward part = args;
               part.ids = there.tensor();
               part.y = out;
               inner().embedding_forward(stream, part);
               stream.synchronize();
             });
  }

 private:
  /// The matmuls whose sum runs over units or vocabulary.
  bool splits(const Gemm& args) const {
    if (tp_ == 1 || args.transpose_a || state_() == nullptr) {
      return false;
    }
    const auto& parameters = state_()->store.parameters();
    const auto weight = std::find_if(parameters.begin(), parameters.end(),
                                     [&](const auto& p) { return p.weight.data == args.b.data; });
    return weight != parameters.end() && weight->spec().cut_dimension == (args.transpose_b ? 1 : 0);
  }

  /// out = sum of `part(start, length, summand)` over tp ranges of [0, size).
  template <typename Part>
  void in_parts(Stream& stream, const Tensor& out, std::int64_t size, Part&& part) {
    const std::int64_t length = (size + tp_ - 1) / tp_;
    std::deque<Scratch> memory;
    std::vector<Tensor> summands;
    for (std::int64_t start = 0; start < size; start += length) {
      summands.push_back(memory.emplace_back(inner(), out.dtype, out.shape).tensor());
      part(start, std::min(length, size - start), summands.back());
    }
    if (out.numel() > 0) {
      inner().reduce_ranks(stream, {.inputs = summands, .outputs = {out}});
    }
    stream.synchronize();
  }

  int tp_;
  std::function<const TrainState*()> state_;
};

}  // namespace

std::unique_ptr<Device> make_split_sums(Device& inner, int tp,
                                        std::function<const TrainState*()> state) {
  return std::make_unique<SplitSums>(inner, tp, std::move(state));
}

}  // namespace tandem::verify
