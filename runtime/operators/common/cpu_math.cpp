#include "runtime/operators/common/cpu_math.h"

namespace etwgpu::cpu {

ETWGPU_KERNEL void applyActivation(Act act, float* p, int64_t n) {
  if (act == Act::none) return;
  for (int64_t i = 0; i < n; i += kLanes) {
    const size_t left = size_t(n - i);
    if (left >= size_t(kLanes)) {
      hn::StoreU(actV(act, hn::LoadU(DF(), p + i)), DF(), p + i);
    } else {
      hn::StoreN(actV(act, loadFirst(p + i, left)), DF(), p + i, left);
    }
  }
}

}  // namespace etwgpu::cpu
