#include "runtime/core/sort_by.h"

#include <algorithm>

namespace etwgpu {

void sortPairs(std::vector<std::pair<uint64_t, uint64_t>>& pairs) { std::sort(pairs.begin(), pairs.end()); }

}  // namespace etwgpu
