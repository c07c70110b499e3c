// Faults in collectives: left out, repeated, averaged, cut short, over the wrong ranks.
#include <algorithm>
#include <cstring>

#include "tests/tools/faulty.h"

namespace tandem::test {

namespace {

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.data, tensor.data + tensor.bytes()};
}

void scale(const Tensor& tensor, double factor) {
  visit_floating(tensor.dtype, [&](auto type) {
    for (auto& value : tensor.span<decltype(type)>()) {
      value = static_cast<decltype(type)>(static_cast<double>(value) * factor);
    }
  });
}

/// What is done to the collective with a label (or all labels with this beginning); all others
/// pass.
Intercept at(const std::string& label, const std::function<void(const InterceptedCall&)>& fault) {
  return [=](const InterceptedCall& call) {
    call.label.starts_with(label) ? fault(call) : call.forward();
  };
}

void leave_out(const InterceptedCall& call) {
  if (call.input.numel() != call.output.numel()) {  // one's own part of the larger tensor
    const bool gathers = call.output.numel() > call.input.numel();
    const Tensor& large = gathers ? call.output : call.input;
    const Tensor part =
        large.flat().slice(0, call.index * (large.numel() / call.size), large.numel() / call.size);
    gathers ? std::memmove(part.data, call.input.data, call.input.bytes())
            : std::memmove(call.output.data, part.data, part.bytes());
  }
}

void twice(const InterceptedCall& call) {
  call.forward();
  call.forward();
}
void mean(const InterceptedCall& call) {
  call.forward();
  scale(call.output, 1.0 / call.size);
}
void a_little_more(const InterceptedCall& call) {
  call.forward();
  scale(call.output, 1.0 + 1e-5);
}
void first_rank_only(const InterceptedCall& call) {
  const auto own = bytes_of(call.output);
  call.forward();
  if (call.index != 0) {
    std::copy(own.begin(), own.end(), call.output.data);
  }
}
/// The last column of rows keeps what it held, or the last part of what has none.
void cut_short(const InterceptedCall& call) {
  const auto own = bytes_of(call.output);
  call.forward();
  const bool rows = call.output.rank() == 2;
  const std::size_t row =
      rows ? call.output.bytes() /
                 std::max<std::size_t>(1, static_cast<std::size_t>(call.output.dim(0)))
           : own.size();
  const std::size_t kept = rows ? size_of(call.output.dtype) : own.size() / 8 / 64 * 64;
  for (std::size_t end = row; row > 0 && end <= own.size(); end += row) {
    std::copy_n(own.data() + end - kept, kept, call.output.data + end - kept);
  }
}
void clear(const InterceptedCall& call) {
  call.forward();
  std::fill_n(call.output.data, call.output.bytes(), std::byte{});
}
/// The gathered parts in the wrong order.
void rotated(const InterceptedCall& call) {
  call.forward();
  std::rotate(call.output.data, call.output.data + call.input.bytes(),
              call.output.data + call.output.bytes());
}

Config sequence_parallel() {
  Config config = fault_config();
  config.parallel.sequence_parallel = true;
  return config;
}

}  // namespace

std::vector<Fault> communication_faults() {
  const Config plain = fault_config();
  const Config sp = sequence_parallel();
  Config wide = plain;
  wide.parallel = {.tp = 4, .dp = 1};
  wide.train.micro_batch = 4;
  const std::string f = "CopyToTensorParallel.backward", g = "ReduceFromTensorParallel.forward";
  const std::string gather = "GatherFromSequenceParallel",
                    scatter = "ReduceScatterToSequenceParallel";
  const std::string dp = "reduction over data ranks";
  return {
      {"f without its all-reduce",
       plain,
       {"f of layers.0", f},
       at("layers.0 f.backward", leave_out)},
      {"f of the head without its all-reduce",
       plain,
       {"f of head", f},
       at("head f.backward", leave_out)},
      {"f's all-reduce twice", plain, {"f of layers.1", f}, at("layers.1 f.backward", twice)},
      {"f's all-reduce a mean", wide, {"f of layers.1", f}, at("layers.1 f.backward", mean)},
      {"f's all-reduce without its last column",
       plain,
       {"f of layers.0", f},
       at("layers.0 f.backward", cut_short)},
      {"g without its all-reduce",
       plain,
       {"g of layers.1", g},
       at("layers.1 g.forward", leave_out)},
      {"g of the embedding without its all-reduce",
       plain,
       {"g of embed", g},
       at("embed g.forward", leave_out)},
      {"g's all-reduce twice", wide, {"g of layers.0", g}, at("layers.0 g.forward", twice)},
      {"g's all-reduce a mean", plain, {"g of layers.0", g}, at("layers.0 g.forward", mean)},
      {"g reduces on the first rank only",
       plain,
       {"g of layers.0", g},
       at("layers.0 g.forward", first_rank_only)},
      {"g without its last column",
       plain,
       {"g of layers.1", g},
       at("layers.1 g.forward", cut_short)},
      {"g off by 1e-5", plain, {"g of layers.0", g}, at("layers.0 g.forward", a_little_more)},
      {"sequence gather in the wrong order",
       sp,
       {"f of layers.0", gather + ".forward"},
       at("layers.0 f.forward", rotated)},
      {"sequence gather's backward without the sum",
       sp,
       {"f of layers.0", gather + ".backward"},
       at("layers.0 f.backward", leave_out)},
      {"reduce-scatter without the sum",
       sp,
       {"g of layers.1", scatter + ".forward"},
       at("layers.1 g.forward", leave_out)},
      {"reduce-scatter's backward in the wrong order",
       sp,
       {"g of layers.1", scatter + ".backward"},
       at("layers.1 g.backward", rotated)},
      {"embedding's reduce-scatter without the sum",
       sp,
       {"g of embed", scatter + ".forward"},
       at("embed g.forward", leave_out)},
      {"partial gradients of token shards not summed",
       sp,
       {"sequence-parallel partial gradients"},
       at("sequence-parallel gradients", leave_out)},
      {"a bucket not reduced",
       plain,
       {dp, "gradients layers.1"},
       at("gradients layers.1", leave_out)},
      {"a bucket of vectors not reduced",
       plain,
       {dp, "gradients vectors"},
       at("gradients vectors", leave_out)},
      {"mean instead of sum over data ranks",
       plain,
       {dp, "averaged over data ranks"},
       at("gradients ", mean)},
      {"mean of the vectors", plain, {dp, "gradients vectors"}, at("gradients vectors", mean)},
      {"a bucket reduced twice",
       plain,
       {dp, "gradients embed", "summed twice"},
       at("gradients embed", twice)},
      {"the end of a bucket not reduced",
       plain,
       {dp, "gradients embed"},
       at("gradients embed", cut_short)},
      {"a bucket reduced on one data rank only",
       plain,
       {dp},
       at("gradients head", first_rank_only)},
      {"a stale bucket", plain, {dp, "gradients layers.0"}, at("gradients layers.0", clear)},
      {"a bucket off by 1e-5",
       plain,
       {dp, "gradients layers.0"},
       at("gradients layers.0", a_little_more)},
      {"gradients summed over the wrong group",
       plain,
       {dp},
       [](const InterceptedCall& call) { call.forward(); },
       true},
      {"row maxima of one shard", plain, {"row maxima"}, at("loss row maxima", leave_out)},
      {"row sums of one shard",
       plain,
       {"sum of the cross-entropy's row sums"},
       at("loss row sums", leave_out)},
      {"every tensor-parallel rank counts its tokens",
       plain,
       {"token count N"},
       at("token count",
          [](const InterceptedCall& call) {
            call.forward();
            call.output.as<std::int64_t>()[0] *= 2;
          })},
      {"every tensor-parallel rank counts its loss",
       plain,
       {"loss is", "each tensor-parallel group once"},
       at("loss and gradient norm",
          [](const InterceptedCall& call) {
            call.forward();
            call.output.as<double>()[0] *= 2.0;
          })},
      {"the norm of one rank's gradients",
       plain,
       {"global norm"},
       at("loss and gradient norm",
          [](const InterceptedCall& call) {
            const double own = call.output.as<double>()[1];
            call.forward();
            call.output.as<double>()[1] = own;
          })},
  };
}

}  // namespace tandem::test
