// NCCL and the part of CUDA around it, for ranks that are threads with deferred devices. Like the
// real one it is non-blocking and late: a call is in progress until it was asked after some times
// and every rank has come, another call meanwhile is an error, and kernels wait on their streams'
// threads for those of their peers, for ever if nobody aborts.
#pragma once

#include <nccl.h>

namespace tandem::testing {

/// From now on every communicator of rank `rank` of a world reports `error`; ncclSuccess for none.
void report_error(int rank, ncclResult_t error);
/// From now on, or no longer, a thread that asks after an event is held inside the call, as by a
/// lock of CUDA's.
void hold_queries(bool held);
/// From now on, or no longer, a thread cannot choose its GPU.
void lose_gpu(bool lost);
/// From now on, or no longer, streams' queues are full: a collective holds its caller inside the
/// call until the stream is through with what was queued before.
void fill_queues(bool full);
/// Communicators that were aborted so far, and those that are alive.
int aborted_communicators();
int living_communicators();

}  // namespace tandem::testing
