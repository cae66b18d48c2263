#include "runtime/webgpu/commands.h"

#include <algorithm>

#include "runtime/core/sort_by.h"

namespace etwgpu {

#if defined(__EMSCRIPTEN__) && !defined(ETWGPU_USE_EMDAWNWEBGPU)
static_assert(sizeof(DispatchCommand) == 20, "JavaScript reads five words");
extern "C" void etwgpu_js_replay(WGPUComputePassEncoder pass, const void* commands, int count);

void CommandList::replay(WGPUComputePassEncoder pass, size_t begin, size_t end) const {
  if (begin < end) etwgpu_js_replay(pass, &commands_[begin], int(end - begin));
}
#else
void CommandList::replay(WGPUComputePassEncoder pass, size_t begin, size_t end) const {
  WGPUComputePipeline current = nullptr;
  for (size_t i = begin; i < end; ++i) {
    const DispatchCommand& c = commands_[i];
    if (c.pipeline != current) wg::ComputePassEncoderSetPipeline(pass, c.pipeline);
    current = c.pipeline;
    wg::ComputePassEncoderSetBindGroup(pass, 0, c.bind_group, 0, nullptr);
    wg::ComputePassEncoderDispatchWorkgroups(pass, c.x, c.y, c.z);
  }
}
#endif

namespace {
// A write costs about as much as this many bytes more in another one.
constexpr size_t kMergeGap = 1024;
}  // namespace

void ShadowBuffer::touch(size_t offset, size_t size) {
  if (size == 0) return;
  const size_t begin = offset / 4 * 4, end = (offset + size + 3) / 4 * 4;
  if (!dirty_.empty() && begin >= dirty_.back().begin && begin <= dirty_.back().end + kMergeGap) {
    dirty_.back().end = std::max(dirty_.back().end, end);
  } else {
    dirty_.push_back({begin, end});
  }
}

uint64_t ShadowBuffer::flush(const Sink& sink) {
  if (dirty_.size() > 1) sortBy(dirty_, [](const Range& r) { return uint64_t(r.begin); });
  uint64_t sent = 0;
  for (size_t i = 0; i < dirty_.size();) {
    Range range = dirty_[i++];
    for (; i < dirty_.size() && dirty_[i].begin <= range.end + kMergeGap; ++i)
      range.end = std::max(range.end, dirty_[i].end);
    sink(range.begin, &bytes_[range.begin], range.end - range.begin);
    sent += range.end - range.begin;
  }
  dirty_.clear();
  return sent;
}

}  // namespace etwgpu
