// Metrics for TensorBoard: an event file, which is a row of protocol buffers in TensorFlow's record
// framing (tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto). The few
// fields that scalars need are written here; a library for them would be larger than they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace tandem {

struct Scalar {
  std::string_view tag;
  double value = 0.0;  ///< written as a float; NaN and infinity among them
};

class EventFile {
 public:
  /// Makes `directory` and a new file in it. `resumed`: the step behind which the run goes on;
  /// TensorBoard then forgets what older files of the directory have behind it.
  EventFile(const std::filesystem::path& directory, std::optional<std::int64_t> resumed);

  /// All at the same step and time, on disk when it returns.
  void add(std::int64_t step, std::initializer_list<Scalar> scalars);
  /// Whether all of it could be written.
  bool good() const { return out_.good(); }

 private:
  void write_record(std::string_view data);

  std::ofstream out_;
};

}  // namespace tandem
