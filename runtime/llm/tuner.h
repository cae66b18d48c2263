// Finds the kernels that a language model runs fastest with on this device, by running it: wall-clock of whole tokens
// and chunks, since timestamps are coarse where they are not switched on, and a kernel alone finds the caches warm.
#pragma once

#include <string>
#include <vector>

#include "runtime/executor/session.h"

namespace etwgpu {

struct TuneOptions {
  /// After the defaults were measured; no candidate is begun later.
  double budget_ms = 15000;
  /// Tokens before those that are measured, as far as the model has room.
  int64_t context = 512;
};
struct TuneReport {
  Tuning tuning;  // what differs from the defaults
  /// Of a token and of a chunk of a prompt, with the defaults and with `tuning`, measured after one another at the end.
  double token_ms_before = 0, token_ms = 0, chunk_ms_before = 0, chunk_ms = 0;
  int candidates = 0;  // that were measured
};

/// Leaves the session with the best kernels and its states reset; nothing else may use it meanwhile, and no Generator
/// may be on it. unsupported_operator where tokens are not chosen on the GPU.
Task<Result<TuneReport>> tune(Session& session, std::string method, TuneOptions options);

}  // namespace etwgpu
