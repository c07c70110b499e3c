// A chart's axis: which values it spans, where a value lies on it, and its ticks.
#pragma once

#include <string>
#include <vector>

namespace tandem::report {

struct Tick {
  double value = 0.0;
  std::string label;
};

class Axis {
 public:
  enum class Scale { kLinear, kLog };

  /// Spans [low, high], rounded outward to ticks if `rounded`. A log axis needs low > 0. A range
  /// without length is widened.
  Axis(double low, double high, Scale scale, bool rounded);
  /// Of step numbers: ticks are whole.
  static Axis of_steps(double first, double last);

  /// 0 at the low end, 1 at the high end; NaN where a log axis has no place for `value`.
  double position(double value) const;
  bool is_log() const { return scale_ == Scale::kLog; }
  double low() const { return low_; }
  double high() const { return high_; }
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  Axis(double low, double high, double step);
  void linear_ticks(double step);
  void decade_ticks();

  double low_, high_;
  Scale scale_;
  std::vector<Tick> ticks_;
};

}  // namespace tandem::report
