// Streams and events of devices whose kernels run inline in the calling thread: by the time a call
// returns its work is done, so there is nothing to record, to order or to wait for.
#pragma once

#include "core/device.h"

namespace tandem {

class ImmediateStream final : public Stream {
 public:
  void record(Event&) override {}
  void wait(const Event&) override {}
  void synchronize() override {}
};

class ImmediateEvent final : public Event {
 public:
  void synchronize() const override {}
};

}  // namespace tandem
