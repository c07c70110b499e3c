#include "train/plan/step_time.h"

#include <string_view>
#include <unordered_map>
#include <utility>

#include "train/plan/timeline.h"
#include "train/plan/work.h"

namespace tandem {

namespace {

class Replay {
 public:
  Replay(const Config& config, const Layout& layout, const Precision& precision,
         const Hardware& hardware, const StepLoad& load)
      : config_(config),
        precision_(precision),
        costs_(hardware.costs_of(layout.world())),
        crowding_(hardware.crowding(layout.world())),
        cold_(hardware.cold_share(crowding_ * load.working_set)),
        load_(load),
        work_(config, layout, precision, load.rows, hardware.gpu),
        language_model_(config.model.kind == ModelKind::kMlpLm),
        time_(hardware.gpu, costs_.waits) {
    for (const Traffic& traffic : load.traffic) {
      const TrafficKey& key = traffic.key;
      const bool is_tp = key.group.view() == "tp";
      const bool is_dp = key.group.view() == "dp";
      const Axis axis = is_tp ? Axis::kTensor : is_dp ? Axis::kData : Axis::kControl;
      const double bytes = static_cast<double>(traffic.bytes) / static_cast<double>(traffic.calls);
      const std::string label(key.label.view());
      const TimedCollective timed = {
          axis, hardware.seconds(costs_, key.op, bytes, key.ranks, is_dp ? layout.tp : 1)};
      // A block's gradients and weights may be several buckets: "gradients layers.0 (1 of 2)".
      (is_dp ? buckets_[label.substr(0, label.find(" ("))] : collectives_[label])
          .emplace_back(timed);
    }
  }

  StepTime run() {
    const auto batches = static_cast<double>(config_.accumulation());
    phase("fetch", [&] { time_.run(batches * seconds(work_.fetch())); });
    phase("token count", [&] { finish("token count"); });
    phase("optimizer", [&] { gather_weights(); });
    if (batches > 1.0) {
      micro_batch(false);
      const Timeline before = time_;
      const auto phases = phases_;
      if (batches > 2.0) {
        micro_batch(false);
        time_.repeat(before, batches - 3.0);
        for (auto& [name, seconds] : phases_) {
          const auto was = phases.find(name);
          seconds += (batches - 3.0) * (seconds - (was == phases.end() ? 0.0 : was->second));
        }
      }
    }
    micro_batch(true);
    finish_step();
    StepTime result{.compute = time_.compute(),
                    .exposed_tp = time_.exposed(Axis::kTensor),
                    .exposed_dp = time_.exposed(Axis::kData),
                    .exposed_control = time_.exposed(Axis::kControl),
                    .fixed = costs_.step_fixed};
    for (const char* name : kPhases) {
      result.phases.push_back({name, phases_[name]});
    }
    return result;
  }

 private:
  static constexpr std::array<const char*, 8> kPhases = {"fetch",
                                                         "token count",
                                                         "upload",
                                                         "forward",
                                                         "backward",
                                                         "finish gradients",
                                                         "loss and gradient norm",
                                                         "optimizer"};

  template <typename Body>
  void phase(const std::string& name, Body&& body) {
    const double start = time_.now();
    body();
    phases_[name] += time_.now() - start;
  }

  void run(const RangeWork& work) { time_.run(seconds(work)); }
  TimedCollective find(const std::string& label) const {
    const auto found = collectives_.find(label);
    return found == collectives_.end() ? TimedCollective{} : found->second.front();
  }
  double start(const std::string& label) { return time_.start(find(label)); }
  void finish(const std::string& label) { time_.finish(find(label)); }
  void wait(Axis axis, double done) { time_.wait(axis, done); }
  static std::string block(std::int64_t i) { return "layers." + std::to_string(i); }

  /// Starts what `label` of a segment of parameters stands for; returns when all will be done.
  double start_buckets(const std::string& label) {
    double done = time_.now();
    if (const auto found = buckets_.find(label); found != buckets_.end()) {
      for (const TimedCollective& bucket : found->second) {
        done = time_.start(bucket);
      }
    }
    return done;
  }
  /// ZeRO: the gathers of the last update run beside the next forward, in its order.
  void gather_weights() {
    if (config_.parallel.zero == 0) {
      return;
    }
    std::vector<std::string> segments = {"embed", "vectors"};
    for (std::int64_t i = 0; i < config_.model.layers; ++i) {
      segments.push_back(block(i));
    }
    segments.emplace_back("head");
    for (const std::string& segment : segments) {
      weights_[segment] = start_buckets("weights " + segment);
    }
  }
  void need_weights(const std::string& segment) {
    if (!weights_.empty()) {
      wait(Axis::kData, weights_[segment]);
    }
  }
  void reduce(const std::string& segment, bool last) {
    if (last) {
      start_buckets("gradients " + segment);
    }
  }

  void micro_batch(bool last) {
    phase("upload", [&] { run(work_.upload()); });
    phase("forward", [&] { forward(); });
    phase("backward", [&] { backward(last); });
  }

  void forward() {
    if (language_model_) {
      need_weights("embed");
      run(work_.embed());
      finish("embed g.forward");
    }
    const BlockTimes costs(*this, block(0));
    need_weights("vectors");
    for (std::int64_t i = 0; i < config_.model.layers; ++i) {
      if (!weights_.empty()) {
        need_weights(block(i));
      }
      time_.run(costs.norm);
      time_.finish(costs.f_forward);
      time_.run(costs.fc1);
      time_.run(costs.activation);
      time_.run(costs.fc2);
      time_.finish(costs.g_forward);
      time_.run(costs.residual);
    }
    if (!language_model_) {
      run(work_.squared_error());
      return;
    }
    need_weights("head");
    run(work_.norm());
    finish("head f.forward");
    run(work_.head());
    run(work_.cross_entropy());
    finish("loss row maxima");
    finish("loss row sums");
    weights_.clear();
  }

  void backward(bool last) {
    if (language_model_) {
      run(work_.head_dgrad());
      const double done = start("head f.backward");
      run(work_.head_wgrad());
      reduce("head", last);
      wait(Axis::kTensor, done);
      run(work_.norm_backward());
    }
    const BlockTimes costs(*this, block(0));
    for (std::int64_t i = config_.model.layers; i-- > 0;) {
      time_.run(costs.dropout_backward);
      const double gathered_gradient = time_.start(costs.g_backward);
      const double gathered_input = time_.start(costs.f_forward);
      wait(Axis::kTensor, gathered_gradient);
      time_.run(costs.fc2_dgrad);
      time_.run(costs.activation_backward);
      time_.run(costs.fc1_dgrad);
      const double done = time_.start(costs.f_backward);
      time_.run(costs.fc2_wgrad);
      wait(Axis::kTensor, gathered_input);
      time_.run(costs.fc1_wgrad);
      reduce(block(i), last);
      wait(Axis::kTensor, done);
      time_.run(costs.norm_backward);
    }
    reduce("vectors", last);
    if (language_model_) {
      finish("embed g.backward");
      run(work_.embed_backward());
      reduce("embed", last);
    }
  }

  void finish_step() {
    phase("finish gradients", [&] {
      wait(Axis::kData, time_.start({Axis::kData, 0.0}));
      finish("sequence-parallel gradients");
      run(gradient_norm_work(precision_, load_.owned_parameters));
    });
    phase("loss and gradient norm", [&] { finish("loss and gradient norm"); });
    phase("optimizer", [&] { run(update_work(config_, precision_, load_.owned_parameters)); });
  }

  /// Of a block, which are all alike.
  struct BlockTimes {
    BlockTimes(const Replay& replay, const std::string& name)
        : norm(replay.seconds(replay.work_.norm())),
          fc1(replay.seconds(replay.work_.fc1())),
          activation(replay.seconds(replay.work_.activation())),
          fc2(replay.seconds(replay.work_.fc2())),
          residual(replay.seconds(replay.work_.residual())),
          dropout_backward(replay.seconds(replay.work_.dropout_backward())),
          fc2_dgrad(replay.seconds(replay.work_.fc2_dgrad())),
          activation_backward(replay.seconds(replay.work_.activation_backward())),
          fc1_dgrad(replay.seconds(replay.work_.fc1_dgrad())),
          fc2_wgrad(replay.seconds(replay.work_.fc2_wgrad())),
          fc1_wgrad(replay.seconds(replay.work_.fc1_wgrad())),
          norm_backward(replay.seconds(replay.work_.norm_backward())),
          f_forward(replay.find(name + " f.forward")),
          g_forward(replay.find(name + " g.forward")),
          f_backward(replay.find(name + " f.backward")),
          g_backward(replay.find(name + " g.backward")) {}

    double norm, fc1, activation, fc2, residual, dropout_backward, fc2_dgrad, activation_backward,
        fc1_dgrad, fc2_wgrad, fc1_wgrad, norm_backward;
    TimedCollective f_forward, g_forward, f_backward, g_backward;
  };
  double seconds(const RangeWork& work) const {
    return work.flops > 0.0 || work.bytes > 0.0 ? crowding_ * costs_.seconds(work, cold_) : 0.0;
  }

  const Config& config_;
  const Precision& precision_;
  const Costs& costs_;
  double crowding_, cold_;
  const StepLoad& load_;
  RankWork work_;
  bool language_model_;
  Timeline time_;
  std::unordered_map<std::string, std::vector<TimedCollective>> collectives_, buckets_;
  std::unordered_map<std::string, double> phases_;
  std::unordered_map<std::string, double> weights_;  ///< when each bucket's gather is done
};

}  // namespace

StepTime step_time(const Config& config, const Layout& layout, const Precision& precision,
                   const Hardware& hardware, const StepLoad& load) {
  return Replay(config, layout, precision, hardware, load).run();
}

}  // namespace tandem
